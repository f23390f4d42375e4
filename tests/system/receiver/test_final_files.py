"""Merged files take the place of what edges have freed, and stay right whatever is done to them.

Real programs: an edge, a centre with an object store, Spark, a second machine, a centre above. What
readers get is held against the points that the test wrote.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from common.config import Secret
from common.console.cli import run
from receiver.metadata.state.table_rows import FileState
from receiver.points import TsFileReader
from sender.config import ReceiverEntry
from tests.support import tiers
from tests.support.centre import Centre
from tests.support.centre import centre as serving
from tests.support.copying_centre import CopyingCentre
from tests.support.edge import Edge
from tests.support.hurrying import hurry
from tests.support.looking import rows
from tests.support.procs import children, wait_until
from tests.system.receiver.follower.test_following_nodes import NodeProcess, catalogue

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

Rows = dict[tuple[str, int], int]
MERGING = (
    '[merge]\nenabled = true\nquiet = "0s"\nmin_files = 5\nevery = "0.1s"\nfinal_after = "1s"\n'
    '[proofs]\nevery = "0.1s"\n[load]\nkeep_deleted = "1s"\n'
)
LONG, SHORT = '[metadata]\nhistory = "1h"\n', '[metadata]\nhistory = "1s"\n'
PATIENCE = 120.0
BESIDE = "root.beside"


class Life:
    """An edge that writes, deletes and frees, and what its points are."""

    def __init__(self, edge: Edge) -> None:
        self.edge = edge
        self.oracle: Rows = {}
        self.freed: list[str] = []

    def write(self) -> None:
        """Twelve files; late data over two of them; and something deleted in a third."""
        device = f"{self.edge.sg}.d1"
        paths = [self.edge.write(number) for number in range(1, 13)]
        self.oracle = {(device, n * 1000 + at): at for n in range(1, 13) for at in range(10)}
        paths.append(self.edge.write(20, first=3005, points=5, kind="unsequence"))
        self.oracle |= {(device, 3005 + at): at for at in range(5)}
        line = f"DELETION,{device}.s1,{2**63 - 1},5002,5004\n"
        (self.edge.data / f"{paths[4]}.mods").write_text(line)
        for at in (5002, 5003, 5004):
            del self.oracle[device, at]
        self.freed = paths

    def free(self) -> None:
        """All of it leaves the edge, which comes once more with something else."""
        for path in self.freed:
            self.edge.remove(path)
            (self.edge.data / f"{path}.mods").unlink(missing_ok=True)
        report = self.edge.round()
        assert report.exit_code == 0, report.as_json()
        self.come(50)

    def come(self, number: int) -> None:
        """It sends a file more, of another storage group."""
        self.edge.write(number, sg=BESIDE)
        self.oracle |= {(f"{BESIDE}.d1", number * 1000 + at): at for at in range(10)}
        assert self.edge.round().sent == 1

    def rest(self) -> None:
        for _ in range(10):
            report = self.edge.round()
            assert report.error is None, report.error
            if report.quiet:
                return
        pytest.fail(f"the edge comes to no rest: {report.as_json()}")


def merged(centre: Centre) -> dict[str, Any]:
    """What a centre tells of merges, whose process does not stand back from now on."""
    assert centre.server is not None
    hurry(centre.server.pid)
    told: dict[str, Any] = centre.call("status")["merged"]
    return told


def made_final(centre: Centre, life: Life) -> None:
    wait_until(lambda: merged(centre)["inputs"] == len(life.freed), "merged", bound=PATIENCE)
    life.free()
    wait_until(lambda: merged(centre)["final"] == 1, "final", bound=PATIENCE)


def until_shipped(centre: Centre) -> None:
    newest = int(centre.call("storage", "status")["newest"])
    wait_until(lambda: int(centre.call("storage", "status")["shipped"]) >= newest, "shipped")


def read(centre: Centre, *arguments: str) -> Rows:
    """What readers get: an export is what they are given."""
    out = centre.root / "out"
    shutil.rmtree(out, ignore_errors=True)
    centre.call("export", str(out), *arguments)
    found: Rows = {}
    for place in sorted(out.rglob("*.tsfile")):
        with TsFileReader(place) as reader:
            for device in reader.tail.devices:
                for batch in reader.read_series(device, "s1"):
                    times, values = (column.to_pylist() for column in batch.columns)
                    more = {
                        (device.name, at): value for at, value in zip(times, values, strict=True)
                    }
                    assert found.keys().isdisjoint(more), "a point is there twice"
                    found |= more
    return found


def merged_file(centre: Centre) -> dict[str, Any]:
    files = centre.call("files", "--limit", "1000")["files"]
    (found,) = (each for each in files if "/merged-" in each["physical"] and
                each["state"] == "retired")  # fmt: skip
    return dict(found)


@pytest.fixture
def life(tmp_path: Path) -> Callable[[str], Life]:
    def made(url: str) -> Life:
        return Life(Edge(tmp_path / "edge", url, propagate_deletes="replaced"))

    return made


class Kept:
    """The session of all tests, which no run ends."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def stop(self) -> None:
        pass


@pytest.mark.spark
def test_what_was_merged_for_good_is_verified_evicted_lost_and_restored(
    tmp_path: Path,
    spark: Any,
    life: Callable[[str], Life],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from receiver.spark.verify.cli import cli

    monkeypatch.setattr("receiver.spark.verify.session.start", lambda _: Kept(spark))

    def verify(centre: Centre, *arguments: str) -> dict[str, Any]:
        capsys.readouterr()
        code = run(cli, "tsferry-verify", ["--json", "--config", str(centre.config), *arguments])
        told: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert (code, told["findings"]) == (0, []), told
        return told

    with children(tmp_path) as processes:
        centre = CopyingCentre(tmp_path / "centre", processes, before_ack=False)
        centre.more = MERGING + LONG
        centre._write()
        edge = life(centre.start())
        edge.write()
        edge.edge.round()
        before = dict(edge.oracle)
        wait_until(lambda: merged(centre)["inputs"] == 13, "merged", bound=PATIENCE)
        as_of = int(centre.call("status")["newest_commit"])
        assert read(centre) == edge.oracle
        made_final(centre, edge)
        assert read(centre) == edge.oracle
        assert read(centre, "--at", str(as_of)) == before, "within the history the inputs are read"
        assert edge.edge.round().tasks == [], "for the edge nothing has changed"

        told = verify(centre)
        assert told["files"] == 2, "the merged one, and the one that is at the edge"
        assert verify(centre, "--new")["files"] == 0

        # Its inputs leave the disk and the store; what is left is evicted.
        wait_until(lambda: merged_file(centre)["stored"], "in the store", bound=PATIENCE)
        centre.stop()
        centre.more = MERGING + SHORT
        centre.store += '\ncapacity = "2K"\nevict_to = 0.1'
        centre._write()
        centre.start()
        left = lambda: len([*centre.data.glob("sequence/**/*.tsfile")])  # noqa: E731
        wait_until(lambda: left() == 0, "evicted", bound=PATIENCE)
        states = lambda: [row.state for row in rows(centre.root, edge.edge.uuid)]  # noqa: E731
        wait_until(lambda: FileState.SUPERSEDED not in states(), "reaped", bound=PATIENCE)
        assert merged_file(centre)["data_dir"] is None
        assert read(centre) == edge.oracle, "fetched"
        assert verify(centre)["files"] == 2
        assert centre.call("fsck")["found"] == []
        assert centre.call("fsck", "--storage", "--deep")["found"] == []

        for arguments in ((), ("--on-demand",)) if tiers.is_long() else (("--on-demand",),):
            until_shipped(centre)
            centre.lose_all()
            assert centre.restore(*arguments) == set()
            centre.start()
            edge.rest()
            assert read(centre) == edge.oracle
            assert verify(centre)["files"] == 2
        assert centre.call("fsck")["found"] == []
        assert centre.call("lost", "list")["files"] == []


def test_an_old_edge_that_comes_back_with_the_inputs_changes_no_answer(
    tmp_path: Path, life: Callable[[str], Life]
) -> None:
    with serving(tmp_path / "dc", MERGING + SHORT) as centre:
        edge = life(centre.start())
        edge.write()
        edge.edge.round()
        copy = tmp_path / "copy"
        shutil.copytree(edge.edge.root, copy)
        made_final(centre, edge)
        name = merged_file(centre)["physical"]
        content = (centre.data / name).read_bytes()
        shutil.rmtree(edge.edge.root)
        copy.rename(edge.edge.root)  # as a backup of it was, before it freed anything
        centre._operator("senders", "accept", edge.edge.uuid)
        edge.rest()
        assert read(centre) == edge.oracle
        live = centre.loaded(edge.edge.uuid)
        assert live == edge.edge.files, "all that it has is loaded, once"
        assert (centre.data / name).read_bytes() == content
        assert centre.call("fsck")["found"] == []


@pytest.mark.long
def test_without_its_inputs_a_rotten_one_is_lost_by_name_and_with_them_it_gives_way(
    tmp_path: Path, life: Callable[[str], Life]
) -> None:
    with serving(tmp_path / "dc", MERGING + LONG) as centre:
        edge = life(centre.start())
        edge.write()
        edge.edge.round()
        made_final(centre, edge)
        place = centre.data / merged_file(centre)["physical"]
        centre.stop()
        whole = place.read_bytes()
        place.write_bytes(whole[:-9] + b"rottenrot")
        assert all(each["repaired"] for each in centre.call("fsck", "--repair")["found"])
        assert read(centre) == edge.oracle, "what it was made of is read again"
        centre.start()
        wait_until(lambda: merged(centre)["inputs"] == 13, "merged again", bound=PATIENCE)
        edge.come(51)
        centre.stop()
        centre.more = MERGING + SHORT  # the bad one has to be forgotten, which might come back
        centre._write()
        centre.start()
        wait_until(
            lambda: merged(centre)["final"] == 1, "merged for good once more", bound=PATIENCE
        )
        assert read(centre) == edge.oracle
        found = lambda: {row.state for row in rows(centre.root, edge.edge.uuid)}  # noqa: E731
        wait_until(
            lambda: FileState.SUPERSEDED not in found(), "its inputs are gone", bound=PATIENCE
        )
        last = merged_file(centre)
        centre.stop()
        (centre.data / last["physical"]).unlink()
        assert all(each["repaired"] for each in centre.call("fsck", "--repair")["found"])
        centre.start()
        edge.edge.round()
        assert [each["path"] for each in centre.call("lost", "list")["files"]] == [last["path"]]
        left = {point: value for point, value in edge.oracle.items() if BESIDE in point[0]}
        assert read(centre) == left


@pytest.mark.long
def test_a_centre_that_begins_to_forward_hands_them_up_and_makes_no_more(
    tmp_path: Path, life: Callable[[str], Life]
) -> None:
    with serving(tmp_path / "b", MERGING + LONG) as lower, serving(tmp_path / "c") as upper:
        url = lower.start()
        edge = life(url)
        token = lower.call("token", "create", "--sender", edge.edge.uuid)["token"]
        entry = msgspec.structs.replace(edge.edge.config.receivers[0], token=Secret(token))
        edge.edge.with_settings(receivers=(entry,))
        edge.write()
        edge.edge.round()
        made_final(lower, edge)
        above = upper.start()
        reader = lower.call("token", "create", "--role", "reader")["token"]
        forwarder = Edge(tmp_path / "forwarder", above)
        forwarder.with_settings(
            receivers=(
                ReceiverEntry(
                    name="c", url=above, source="receiver", source_url=url,
                    source_token=Secret(reader),
                ),
            )
        )  # fmt: skip
        for _ in range(3):
            report = forwarder.round()
            assert report.exit_code == 0, report.as_json()
        assert forwarder.round().quiet
        assert read(upper) == edge.oracle
        # From now on files themselves go up: what is merged here is not for good.
        device = f"{edge.edge.sg}.d1"
        paths = [edge.edge.write(number) for number in range(60, 70)]
        edge.oracle |= {(device, n * 1000 + at): at for n in range(60, 70) for at in range(10)}
        edge.edge.round()
        wait_until(lambda: merged(lower)["inputs"] >= 10, "merged", bound=PATIENCE)
        for path in paths:
            edge.edge.remove(path)
        edge.edge.round()
        edge.come(80)
        wait_until(lambda: merged(lower)["kept_back"], "kept back", bound=PATIENCE)
        assert "forwarded from" in merged(lower)["kept_back"]
        assert merged(lower)["final"] == 1
        for _ in range(3):
            forwarder.round()
        assert read(upper) == read(lower) == edge.oracle


@pytest.mark.long
def test_followers_and_a_receiver_that_begins_anew_from_etcd_read_the_same(
    tmp_path: Path, own_etcd: Any, life: Callable[[str], Life]
) -> None:
    settings = own_etcd.settings()
    etcd = (
        f'[metadata]\nhistory = "1h"\nbackend = "etcd"\n[metadata.etcd]\n'
        f'endpoints = ["{settings.endpoints[0]}"]\nprefix = "{settings.prefix}"\nlease = "2s"\n'
        f'timeout = "1s"\n[storage]\nurl = "{(tmp_path / "bucket").as_uri()}"\nlag = "100ms"\n'
    )
    (tmp_path / "bucket").mkdir()
    with children(tmp_path) as processes:
        centre = Centre(tmp_path / "centre", processes, MERGING + etcd)
        address = centre.start()
        token = centre.call("token", "create", "--role", "operator")["token"]
        edge = life(address)
        entry = msgspec.structs.replace(
            edge.edge.config.receivers[0],
            token=Secret(centre.call("token", "create", "--sender", edge.edge.uuid)["token"]),
        )
        edge.edge.with_settings(receivers=(entry,))
        edge.write()
        edge.edge.round()
        follow = f'[follow]\nurl = "{address}"\ntoken = "{token}"\n'
        node = NodeProcess(tmp_path / "node", processes, follow, token)
        node.start()
        made_final(centre, edge)
        writer = NodeProcess.__new__(NodeProcess)
        writer.port, writer.token = centre.port, token
        wait_until(lambda: node.commit() >= writer.commit(), "followed", bound=PATIENCE)
        wait_until(lambda: catalogue(node) == catalogue(writer), "the same files", bound=PATIENCE)
        assert sum("/merged-" in each["path"] for each in catalogue(node)) == 1
        node.stop()
        wait_until(lambda: merged_file(centre)["stored"], "in the store", bound=PATIENCE)
        centre.kill()  # all of the machine is lost; etcd and the store are there
        shutil.rmtree(centre.root / "schema")
        shutil.rmtree(centre.data)
        centre.data.mkdir()
        centre.start()
        # Until it is the owner of the copies again, it is none that the edge believes.
        wait_until(lambda: edge.edge.round().error is None, "the edge knows it", bound=PATIENCE)
        edge.rest()
        assert read(centre) == edge.oracle
        assert merged(centre)["final"] == 1
