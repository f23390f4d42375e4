"""Files that are not taken: owned by another, damaged, or no files at all. The rest goes on."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sender.select.data_dirs import mark
from tests.support.architecture import ROOT
from tests.support.edge import Edge
from tests.support.looking import in_sync, loaded, rows
from tests.support.tsfile_bytes import build
from tests.system.sender.test_rounds import COMMAND, call
from tests.system.test_lost_state import operator


def tsfile(*devices: str, first: int = 1) -> bytes:
    return build({device: {"s1": [(first, 1), (first + 1, 2)]} for device in devices})


# -- owners ----------------------------------------------------------------------------------------


@pytest.fixture
def pair(shared, make_edge):
    """Two edges; the second has a file with a device of the first, and one of its own."""
    first, second = make_edge(shared.url), make_edge(shared.url)
    first.write(1, device=f"{first.sg}.d1")
    assert first.round().exit_code == 0
    second.put(second.path(1), tsfile(f"{first.sg}.d1", f"{second.sg}.d1"))
    second.write(2)
    report = second.round()
    assert [(each.file, each.device) for each in report.conflicts] == [
        (second.path(1), f"{first.sg}.d1")
    ]
    assert (report.exit_code, report.sent, report.bytes) == (3, 1, len(_small(second, 2)))
    return first, second


def _small(edge, number: int) -> bytes:
    """What travels of a file: its bytes and its resource's."""
    path = edge.path(number)
    return edge.content(path) + (edge.data / f"{path}.resource").read_bytes()


def test_a_device_that_is_transferred_loads_in_the_next_round(shared, pair):
    first, second = pair
    shared.call("owners", "transfer", f"{first.sg}.d1", second.uuid)
    report = second.round()
    assert (report.sent, report.exit_code) == (1, 0), report.as_json()
    in_sync(second, shared.root)
    # What was loaded stays, and stands below what the new owner brings; what comes now is refused.
    retired = [row.path for row in rows(shared.root, first.uuid) if row.retired and row.visible]
    assert first.path(1) in retired
    first.write(9, device=f"{first.sg}.d1")
    report = first.round()
    assert first.path(9) in [each.file for each in report.conflicts]


def test_a_device_that_is_released_goes_to_whoever_comes_first(shared, pair):
    first, second = pair
    shared.call("owners", "release", f"{first.sg}.d1")
    assert second.round().exit_code == 0
    owners = shared.call("owners", "list", "--sender", second.uuid)["owners"]
    assert f"{first.sg}.d1" in {each["device"] for each in owners}


def test_the_sender_learns_the_device_and_not_whose_it_is(shared, pair):
    first, second = pair
    report = second.round()
    told = json.dumps(report.as_json())
    assert f"{first.sg}.d1" in told
    assert first.uuid not in told


def test_two_senders_that_race_for_a_device_leave_it_to_one_of_them(shared, make_edge):
    edges = [make_edge(shared.url) for _ in range(4)]
    device = f"{edges[0].sg}.contested"
    for edge in edges:
        edge.put(edge.path(1), tsfile(device))
        edge.write(2)
    with ThreadPoolExecutor(4) as pool:
        reports = list(pool.map(lambda edge: edge.round(), edges))
    assert sorted(report.exit_code for report in reports) == [0, 3, 3, 3]
    for edge, report in zip(edges, reports, strict=True):
        assert edge.path(2) in loaded(shared.root, edge.uuid), "a lost race costs one file"
        assert [each.device for each in report.conflicts] == [device] * (report.exit_code == 3)


def test_other_content_under_a_loaded_name_is_an_error_that_both_sides_see(shared, make_edge):
    """The list is lost, and meanwhile the file was written anew with the same size."""
    edge = make_edge(shared.url)
    edge.put(edge.path(1), tsfile(f"{edge.sg}.d1", first=100))
    edge.round()
    before = loaded(shared.root, edge.uuid)
    for place in edge.data.glob("sync-sender/*/l*"):
        place.unlink()
    edge.put(edge.path(1), tsfile(f"{edge.sg}.d1", first=200))
    report = edge.round()
    # Listed with other content: it replaces what is there, as one change; never silently nothing.
    assert (report.sent, report.exit_code) == (1, 0), report.as_json()
    assert loaded(shared.root, edge.uuid) == edge.files != before


def test_the_same_path_in_two_data_directories_with_other_content_is_shown(shared, make_edge):
    edge = make_edge(shared.url)
    other = edge.root / "data2"
    edge.write(1)
    edge.write(2)
    for kind in ("sequence", "unsequence"):
        (other / kind).mkdir(parents=True)
    mark(other, edge.uuid)
    clash = other / edge.path(1)
    clash.parent.mkdir(parents=True)
    clash.write_bytes(tsfile(f"{edge.sg}.d1"))
    clash.with_name(f"{clash.name}.resource").write_bytes(b"r")
    edge.with_settings(data_dirs=(edge.data, other))
    report = edge.round()
    assert report.exit_code == 3
    assert [each.file for each in report.conflicts] == [edge.path(1)]
    assert list(loaded(shared.root, edge.uuid)) == [edge.path(2)]


# -- poison ----------------------------------------------------------------------------------------


def zoo(edge) -> dict[str, str]:
    """Files of every bad kind; path -> a word of the reason that `status` must give."""
    whole = tsfile(*(f"{edge.sg}.d{number}" for number in range(20)))
    assert len(whole) > 1000
    reasons: dict[str, str] = {}

    def put(number: int, content: bytes, word: str) -> None:
        path = edge.path(number)
        edge.put(path, content)
        reasons[path] = word

    put(10, b"", "empty")
    put(11, whole[:-7], "unsealed")
    put(12, whole[: len(whole) // 2], "unsealed")
    put(13, b"no TsFile, but long enough to have had a tail" * 10, "TsFile")
    put(14, b"TsFile000001" + whole[6:], "")
    put(15, whole[:6] + b"\x09" + whole[7:], "version")
    damaged = bytearray(whole)
    position = len(whole) - 200
    damaged[position : position + 60] = b"\xff" * 60
    put(16, bytes(damaged), "")
    path = edge.path(20)
    edge.write(20)
    (edge.data / path).unlink()
    os.mkfifo(edge.data / path)
    reasons[path] = "regular"
    path = edge.path(21)
    edge.write(21)
    target = edge.root / "outside.tsfile"
    (edge.data / path).rename(target)
    (edge.data / path).symlink_to(target)
    reasons[path] = "symlink"
    path = edge.path(22)
    (edge.data / path).mkdir()
    (edge.data / f"{path}.resource").write_bytes(b"r")
    reasons[path] = "regular"
    directory = (edge.data / path).parent
    for name in (
        "1581324718800-1-0-0\n.tsfile",
        "1581324718801-1-0-0\x1b[31m.tsfile",
        "1581324718802-1-0-0\u202egpj.tsfile",
    ):
        (directory / name).write_bytes(whole)
        (directory / f"{name}.resource").write_bytes(b"r")
    return reasons


def test_poison_waits_with_its_reason_while_the_rest_goes(shared, make_edge):
    edge = make_edge(shared.url, propagate_deletes="all")
    good = [edge.write(number) for number in range(3)]
    reasons = zoo(edge)
    started = time.monotonic()
    report = edge.round()
    assert time.monotonic() - started < 60, "nothing waits on a FIFO"
    assert report.error is None, report.error
    assert sorted(loaded(shared.root, edge.uuid)) == sorted(good)
    config = edge.write_config()
    done = call(config, "status", "--json")
    assert done.returncode == 3, done.stderr
    found = json.loads(done.stdout)["receivers"]["dc1"]
    told = {each["file"]: each["reason"] for each in [*found["waiting"], *found["troubles"]]}
    for path, word in reasons.items():
        where = next((key for key in told if key == path or key.endswith(path)), None)
        assert where is not None, f"{path} is not told of: {sorted(told)}"
        assert word in told[where], (path, told[where])
    names = [each["file"] for each in found["waiting"]]
    assert sum("15813247188" in each for each in names) == 3, names
    text = call(config, "status").stdout
    assert "\x1b" not in text
    assert "\u202e" not in text
    # The next round is not held up either, and what is healed goes.
    edge.write(3)
    edge.put(edge.path(11), tsfile(f"{edge.sg}.d1", first=5000))
    assert edge.round().error is None
    assert {edge.path(3), edge.path(11)} <= set(loaded(shared.root, edge.uuid))


@pytest.fixture
def own_place():
    """A directory that every user may enter: pytest lets nobody into its own, at each start."""
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        yield Path(place)


@pytest.mark.skipif(os.geteuid() != 0, reason="changes the user")
def test_a_file_that_may_not_be_read_waits_and_the_rest_goes(shared, own_place):
    edge = Edge(own_place / "edge", shared.url)
    edge.sg = f"root.e{edge.uuid}"
    edge.write(1)
    secret = edge.write(2)
    (edge.data / secret).chmod(0)
    config = edge.write_config()
    for each in [edge.root, *edge.root.rglob("*")]:
        os.chown(each, 65534, 65534)
    assert as_nobody(config, "sync", "--json").returncode in (0, 3)
    assert list(loaded(shared.root, edge.uuid)) == [edge.path(1)]
    told = as_nobody(config, "status", "--json")
    assert told.stdout, told.stderr
    (waiting,) = json.loads(told.stdout)["receivers"]["dc1"]["waiting"]
    assert waiting["file"] == secret
    assert "Permission denied" in waiting["reason"]
    (edge.data / secret).chmod(0o644)
    assert as_nobody(config, "sync").returncode == 0
    assert loaded(shared.root, edge.uuid) == edge.files


def as_nobody(config, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command as a user that may not read everything."""
    user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    done = subprocess.run(
        [*user, COMMAND, "--config", str(config), *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


# -- quarantine at both ends -----------------------------------------------------------------------


def test_a_file_quarantined_after_its_load_is_wanted_again_and_comes_again(centre, make_edge):
    edge = make_edge(centre.start())
    for number in range(3):
        edge.write(number)
    edge.round()
    (physical,) = centre.data.glob("sequence/**/*-1-0-0.*.tsfile")
    content = bytearray(physical.read_bytes())
    content[25] ^= 1
    physical.write_bytes(content)
    centre.stop()
    assert operator(centre, "fsck") == 1
    operator(centre, "fsck", "--repair")
    centre.start()
    listed = centre.call("quarantine", "list")["entries"]
    assert [each["path"] for each in listed] == [edge.path(1)]
    report = edge.round()
    assert (report.sent, report.exit_code) == (1, 0), report.as_json()
    in_sync(edge, centre.root)
    assert centre.call("quarantine", "list")["entries"] == []


def test_held_files_are_offered_again_only_when_the_operator_says_so(shared, make_edge):
    edge = make_edge(shared.url)
    edge.write(1)
    path = edge.path(2)
    whole = tsfile(*(f"{edge.sg}.d{number}" for number in range(20)))
    damaged = bytearray(whole)
    damaged[-200:-140] = b"\xff" * 60
    edge.put(path, bytes(damaged))
    first = edge.round()
    assert first.exit_code == 3, first.as_json()
    assert [each.file for each in first.quarantined] == [path]
    config = edge.write_config()
    listed = json.loads(call(config, "quarantine", "list", "--json").stdout)
    assert [(each["file"], each["hold"]) for each in listed] == [(path, True)]
    assert edge.round().exit_code == 3, "it is still not loaded"
    assert call(config, "quarantine", "retry", path).returncode == 0
    assert [each.file for each in edge.round().quarantined] == [path], "tried, and still bad"
    assert call(config, "quarantine", "drop", path).returncode == 0
    assert edge.round().exit_code == 0, "given up: in nobody's way"
    assert json.loads(call(config, "quarantine", "list", "--json").stdout) == []
    assert call(config, "quarantine", "retry", edge.path(1)).returncode == 2
    edge.put(path, whole)
    assert edge.round().exit_code == 0, "other content under the path clears it"
    in_sync(edge, shared.root)


def test_the_end_of_a_file_at_the_edge_clears_its_trouble(shared, pair):
    _, second = pair
    second.remove(second.path(1))
    assert second.round().exit_code == 0
    in_sync(second, shared.root)


def test_the_receivers_quarantine_can_be_listed_retried_and_dropped(shared, pair):
    """What was refused at the centre is known there until the sender's word or the operator's."""
    _, second = pair
    listed = [
        each
        for each in shared.call("quarantine", "list", "--sender", second.uuid)["entries"]
        if each["path"] == second.path(1)
    ]
    for entry in listed:
        assert entry["hold"] is False
        assert entry["device"]
        shared.call("quarantine", "drop", entry["path"], "--sender", second.uuid)
    assert shared.call("quarantine", "list", "--sender", second.uuid)["entries"] == []
    assert second.round().exit_code == 3, "the conflict is still there"
