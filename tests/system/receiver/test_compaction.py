"""Edge to receiver to merged files, with the real programs and the process that merges."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from receiver.points import TsFileReader
from tests.support.centre import Centre
from tests.support.centre import centre as serving
from tests.support.edge import Edge
from tests.support.hurrying import hurry, hurrying
from tests.support.procs import wait_until

BY_ITSELF = '[merge]\nenabled = true\nquiet = "0s"\nmin_files = 5\nevery = "0.1s"\n'


@pytest.fixture
def by_itself(tmp_path: Path) -> Iterator[Centre]:
    with serving(tmp_path / "dc", BY_ITSELF) as made:
        yield made


def merged(centre: Centre) -> dict[str, Any]:
    """What a centre tells of merges, whose process does not stand back from now on."""
    assert centre.server is not None
    hurry(centre.server.pid)
    told = centre.call("status")["merged"]
    assert isinstance(told, dict)
    return told


def points(root: Path, names: str = "merged-*.tsfile") -> dict[tuple[str, int], int]:
    """What files give that are called so: the merged ones."""
    found: dict[tuple[str, int], int] = {}
    for place in sorted(root.glob(f"sequence/*/0/0/{names}")):
        with TsFileReader(place) as reader:
            for device in reader.tail.devices:
                for batch in reader.read_series(device, "s1"):
                    times, values = (column.to_pylist() for column in batch.columns)
                    found |= {
                        (device.name, at): value for at, value in zip(times, values, strict=True)
                    }
    return found


def side_process(centre: Centre) -> int | None:
    """The process beside the server that merges, where one runs."""
    for each in Path("/proc").iterdir():
        try:
            said = (each / "cmdline").read_bytes()
            mine = str(centre.root).encode() in (each / "environ").read_bytes()
        except OSError:
            continue
        if b"merge_worker" in said and mine:
            return int(each.name)
    return None


@pytest.mark.slow
def test_files_of_an_edge_are_merged_and_give_the_same_rows(
    by_itself: Centre, make_edge: Callable[..., Edge]
) -> None:
    edge = make_edge(by_itself.start())
    for number in range(1, 13):
        edge.write(number)
    late = edge.write(20, first=3000, points=5, kind="unsequence")
    edge.round()
    told = wait_until(
        lambda: merged(by_itself) if merged(by_itself)["inputs"] == 13 else None, "merged"
    )
    assert (told["compactions"], told["outputs"], told["problem"]) == (1, 1, None)
    device = f"{edge.sg}.d1"
    expected = {(device, n * 1000 + at): at for n in range(1, 13) for at in range(10)}
    expected |= {(device, 3000 + at): at for at in range(5)}
    assert points(by_itself.data) == expected
    out = by_itself.root / "out"
    by_itself.call("export", str(out))
    assert points(out, "*.tsfile") == expected, "what readers are given"
    assert len(by_itself.loaded(edge.uuid)) == 13, "the files themselves stay"
    assert late in by_itself.loaded(edge.uuid)
    assert edge.round().tasks == [], "for the edge nothing has changed"
    by_itself.kill()
    by_itself.start()
    assert merged(by_itself)["inputs"] == 13
    edge.write(2, first=2000, points=20, kind="unsequence", level=0)
    edge.round()
    assert by_itself.stop() == 0
    assert by_itself.call("fsck")["found"] == []


@pytest.mark.slow
def test_an_operator_has_files_merged_with_a_server_and_without(
    centre: Centre, make_edge: Callable[..., Edge]
) -> None:
    edge = make_edge(centre.start())
    for number in range(1, 4):
        edge.write(number)
    edge.round()
    (said,) = centre.call("compact", edge.sg, "0")["partitions"]
    assert (said["storage_group"], said["partition"], said["files"]) == (edge.sg, "0", 3)
    assert int(said["work"]) > 0
    wait_until(lambda: merged(centre)["inputs"] == 3 and not merged(centre)["waiting"], "merged")
    for number in range(4, 6):
        edge.write(number)
    edge.round()
    assert centre.stop() == 0
    with hurrying():
        answer = centre.call("compact", "root")
    assert answer["done"]
    assert answer["problem"] is None
    told = merged(centre)
    assert (told["compactions"], told["inputs"], told["waiting"]) == (1, 5, 0)
    assert len(points(centre.data)) == 50
    assert centre.call("fsck")["found"] == []


@pytest.mark.slow
def test_the_process_that_merges_stands_back_and_ends_with_its_server(
    by_itself: Centre, make_edge: Callable[..., Edge]
) -> None:
    edge = make_edge(by_itself.start(env={"TSFERRY_TEST_ROOT": str(by_itself.root)}))
    for number in range(1, 21):
        edge.write(number, points=8_000)
    edge.round()
    pid = wait_until(lambda: side_process(by_itself), "a process that merges")
    wait_until(lambda: os.getpriority(os.PRIO_PROCESS, pid) == 19, "it stands back")
    os.kill(pid, signal.SIGSTOP)  # a process that stands still hears no end of a line
    by_itself.kill()
    wait_until(lambda: side_process(by_itself) is None, "it ended with the server")
    by_itself.start()
    wait_until(lambda: merged(by_itself)["inputs"] == 20, "merged by the next life")
    wait_until(lambda: not any((by_itself.data / "merging").iterdir()), "nothing left behind")


@pytest.mark.slow
def test_a_merge_that_is_killed_by_hand_leaves_its_inputs_and_the_next_try_merges_them(
    by_itself: Centre, make_edge: Callable[..., Edge]
) -> None:
    edge = make_edge(by_itself.start(env={"TSFERRY_TEST_ROOT": str(by_itself.root)}))
    for number in range(1, 21):
        edge.write(number, points=2_000)
    edge.round()
    os.kill(wait_until(lambda: side_process(by_itself), "a process that merges"), signal.SIGKILL)
    wait_until(lambda: merged(by_itself)["inputs"] == 20, "merged by the next try")
    assert points(by_itself.data) == points(by_itself.data, "[0-9]*.tsfile")
    assert by_itself.call("tasks", "list", "--state", "failed")["tasks"] == []
    assert len(by_itself.loaded(edge.uuid)) == 20
    wait_until(lambda: not any((by_itself.data / "merging").iterdir()), "nothing left behind")
    assert by_itself.stop() == 0
    assert by_itself.call("fsck")["found"] == []
