"""A -> B -> C: two edges feed a centre, which forwards to a higher one, and nothing goes twice."""

from __future__ import annotations

import hashlib
from collections import Counter

import msgspec
import pytest

from common import crash
from common.config import Secret
from common.crash import SimulatedCrash
from receiver.metadata.state.table_rows import FileState
from sender.config import ReceiverEntry
from tests.support.centre import centre as serving
from tests.support.edge import Edge
from tests.support.looking import loaded, once, rows
from tests.support.oracle import rows_read
from tests.system.test_lost_state import restore, save

ALL = {"propagate_deletes": "all"}


class Chain:
    """Edges A1 and A2, centre B with its forwarding sender, centre C."""

    def __init__(self, tmp_path, b, c) -> None:
        self.lower, self.upper = b, c
        url, upper = b.start(), c.start()
        self.edges = []
        for name in ("one", "two"):
            edge = Edge(tmp_path / name, url, **ALL)
            edge.sg = "root.shared"
            self.edges.append(edge)
        reader = b.call("token", "create", "--role", "reader")["token"]
        for edge in self.edges:
            token = b.call("token", "create", "--sender", edge.uuid)["token"]
            edge.with_settings(receivers=(ReceiverEntry(name="b", url=url, token=Secret(token)),))
        self.forwarder = Edge(tmp_path / "forwarder", upper, **ALL)
        self.forwarder.with_settings(
            receivers=(
                ReceiverEntry(
                    name="c",
                    url=upper,
                    source="receiver",
                    source_url=url,
                    source_token=Secret(reader),
                ),
            )
        )

    def write(self, number: int, **how) -> None:
        """One name at both edges, each with a device of its own."""
        for name, edge in zip(("a", "b"), self.edges, strict=True):
            edge.write(number, device=f"root.shared.{name}{number % 2}", **how)

    def edges_sync(self) -> None:
        for edge in self.edges:
            report = edge.round()
            assert report.exit_code == 0, report.as_json()

    def all_is_there(self) -> None:
        """C has what the edges have: each content once."""
        for edge in self.edges:
            assert loaded(self.lower.root, edge.uuid) == edge.files
        wanted = Counter(md5 for edge in self.edges for md5 in edge.files.values())
        assert Counter(loaded(self.upper.root, self.forwarder.uuid).values()) == wanted
        once(self.upper.root, self.forwarder.uuid)


@pytest.fixture
def chain(tmp_path):
    with serving(tmp_path / "b") as b, serving(tmp_path / "c") as c:
        yield Chain(tmp_path, b, c)


def test_files_of_one_name_from_two_edges_stay_two_all_the_way(chain):
    for number in range(4):
        chain.write(number, points=10 + number)
    chain.edges_sync()
    report = chain.forwarder.round()
    assert (report.sent, report.exit_code) == (8, 0), report.as_json()
    chain.all_is_there()
    devices = chain.upper.call("owners", "list", "--sender", chain.forwarder.uuid)["owners"]
    assert len(devices) == 4
    assert chain.forwarder.round().quiet


def test_deletions_and_restarts_of_all_three_go_all_the_way_once(chain):
    for number in range(6):
        chain.write(number)
    chain.edges_sync()
    assert chain.forwarder.round().sent == 12
    for number in (0, 3):
        for edge in chain.edges:
            edge.remove(edge.path(number))
    chain.write(1, points=25)
    chain.write(9)
    chain.edges_sync()
    chain.lower.kill()
    chain.lower.start()

    def die(name: str) -> None:
        if name == "task.ended":
            raise SimulatedCrash(name)

    with crash.arm(die), pytest.raises(SimulatedCrash):
        chain.forwarder.round()
    chain.upper.kill()
    chain.upper.start()
    report = chain.forwarder.round()
    assert report.exit_code == 0, report.as_json()
    assert chain.forwarder.round().quiet
    chain.all_is_there()
    gone = [
        row
        for row in rows(chain.upper.root, chain.forwarder.uuid)
        if row.state is FileState.DELETED
    ]
    assert len(gone) == 6, "two deletions and one replacement of each edge"


def test_a_compaction_below_is_one_change_above(chain):
    one = chain.edges[0]
    for number in range(20):
        one.write(number, device="root.shared.a")
    one.round()
    chain.forwarder.round()
    for number in range(20):
        one.remove(one.path(number))
    one.write(0, level=1, first=0, points=20_000, device="root.shared.a")
    one.round()
    report = chain.forwarder.round()
    assert (report.sent, report.deleted, report.exit_code) == (1, 20, 0), report.as_json()
    found = rows(chain.upper.root, chain.forwarder.uuid)
    (new,) = (row for row in found if row.state is FileState.LIVE)
    assert {row.deleted for row in found if row.state is FileState.DELETED} == {new.created}
    chain.all_is_there()


def test_resources_travel_all_the_way(chain):
    one = chain.edges[0]
    path = one.write(1, resource=b"what the database wrote")
    one.round()
    chain.forwarder.round()
    (row,) = rows(chain.upper.root, chain.forwarder.uuid)
    resource = chain.upper.data / f"{row.physical}.resource"
    assert resource.read_bytes() == b"what the database wrote"
    assert hashlib.md5(one.content(path)).hexdigest() == row.md5
    (one.data / f"{path}.resource").write_bytes(b"what it wrote anew")
    assert one.round().resources == 1
    assert chain.forwarder.round().resources == 1
    assert resource.read_bytes() == b"what it wrote anew"
    assert (one.round().quiet, chain.forwarder.round().quiet) == (True, True)


def test_an_exchanged_centre_in_the_middle_deletes_nothing_above_until_the_operator_says_so(
    chain, tmp_path
):
    """B is replaced by an empty receiver: its catalogue says nothing of what is gone."""
    chain.write(1)
    chain.edges_sync()
    chain.forwarder.round()
    before = loaded(chain.upper.root, chain.forwarder.uuid)
    with serving(tmp_path / "other") as other:
        url = other.start()
        token = other.call("token", "create", "--role", "reader")["token"]
        entry = msgspec.structs.replace(
            chain.forwarder.config.receivers[0], source_url=url, source_token=Secret(token)
        )
        chain.forwarder.with_settings(receivers=(entry,))
        for _ in range(2):
            report = chain.forwarder.round()
            assert (report.deleted, report.retired, report.error) == (0, 0, None)
            assert len(report.held) == 2
            assert "--accept-source" in report.held[0].reason
        assert loaded(chain.upper.root, chain.forwarder.uuid) == before
        report = chain.forwarder.round(accept_source=True)
        assert (report.deleted, report.retired) == (0, 2), "nobody deleted what the old one had"


def test_an_old_copy_of_the_centre_in_the_middle_deletes_nothing_above(chain, tmp_path):
    chain.write(1)
    chain.edges_sync()
    chain.forwarder.round()
    chain.lower.stop()
    save(chain.lower, tmp_path / "copy")
    chain.lower.start()
    chain.write(2)
    chain.edges_sync()
    chain.forwarder.round()
    before = loaded(chain.upper.root, chain.forwarder.uuid)
    chain.lower.stop()
    restore(chain.lower, tmp_path / "copy")
    chain.lower.start()
    report = chain.forwarder.round()
    assert (report.deleted, len(report.held)) == (0, 2), report.as_json()
    assert loaded(chain.upper.root, chain.forwarder.uuid) == before
    chain.edges_sync()  # the edges put it right
    report = chain.forwarder.round()
    assert report.deleted == 0, report.as_json()
    report = chain.forwarder.round(accept_source=True)
    assert report.error is None
    chain.all_is_there()


def devices_read(centre) -> Counter:
    """How many points a reader gets of each device."""
    return Counter(row["device"] for row in rows_read(centre.root / "schema"))


def test_what_one_edge_deleted_hides_nothing_of_another_one_above(chain):
    """A pattern of one edge fits the other's devices, and their files have the same names."""
    for number in (1, 2):
        chain.write(number)
    chain.edges_sync()
    chain.forwarder.round()
    one = chain.edges[0]
    one.round()  # a look behind the one that had the other's files first
    beside = one.data / f"{one.path(1)}.mods"
    beside.write_text(f"DELETION,root.shared.**,{1 << 40},0,{1 << 40}\n")
    chain.edges_sync()
    below = devices_read(chain.lower)
    assert below == {"root.shared.b0": 10, "root.shared.b1": 10}
    report = chain.forwarder.round()
    assert report.exit_code == 0, report.as_json()
    assert devices_read(chain.upper) == below
