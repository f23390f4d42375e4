from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from common import wire
from common.metering.measures import Readings
from receiver.metadata.model import records
from receiver.metadata.model.centre_source import CENTRE, centre_uuid
from receiver.metadata.model.true_times import TrueTimes
from receiver.metadata.state.state import State
from receiver.metrics.receiver_measures import RECEIVER_MEASURES
from receiver.metrics.receiver_readings import ReceiverReadings
from receiver.metrics.request_tallies import NodeStanding, RequestTallies
from receiver.node import Node
from receiver.operator.directories import look
from receiver.operator.edges.senders import remove_sender
from receiver.operator.edges.tokens import make_token, revoke_token
from receiver.operator.status import status
from receiver.operator.stored.backup_note import BackupNote, write_backup_note
from receiver.operator.stored.files import list_files
from tests.support.authority import Authority
from tests.support.copy_nodes import place_tablets
from tests.support.heard_nodes import SpeakingNode, tablet
from tests.support.node_world import OPERATOR, A, B, Edge, World, path_of, tsfile
from tests.support.scraped import Scraped, badly_named

DAY = 86400.0


def readings(node: Node, most: int = 1000) -> ReceiverReadings:
    return ReceiverReadings(
        node.operator,
        RequestTallies(),
        lambda: NodeStanding(node.problem(), len(node.concerns()), "0.2.0"),
        most_edges=most,
    )


def scrape(node: Node, most: int = 1000) -> Scraped:
    return Scraped(readings(node, most).text())


def test_names_keep_to_the_customs() -> None:
    assert badly_named(RECEIVER_MEASURES) == []
    names = [each.name for each in RECEIVER_MEASURES]
    assert len(set(names)) == len(names)


def test_background_tasks_of_which_nobody_was_heard_are_not_among_those_that_run(
    world: World,
) -> None:
    now = [0.0]
    with world.still_node() as node:
        node.work._clock = lambda: now[0]
        for at in range(4):
            node.work.add("prove", b"", [records.WorkPlace("root.sg", str(at))])
        node.work.take("silent", ["prove"])
        now[0] += node.work.lease / 2
        node.work.take("at work", ["prove"])
        now[0] += node.work.lease / 2
        found = {
            key[0]: value
            for key, value in scrape(node).of("tsferry_receiver_background_tasks").items()
        }
        assert found == {"waiting": 2, "running": 1, "overdue": 1, "failed": 0}


def test_what_status_says_is_measured(world: World) -> None:
    with world.node() as node:
        edge = Edge(node)
        edge.check()
        node.load.make_known(A, f"x_{A}", "plant 7")
        edge.round({path_of(n): tsfile(f"root.sg.d{n}", first=n * 100) for n in (1, 2, 3)})
        bad = list_files(node.operator).files[0]
        node.engine.commit([records.FileQuarantined(bad.physical, "md5: other")])
        make_token(node.engine, records.READER, expires=world.clock() + 2 * DAY)
        write_backup_note(world.config.schema_dir, BackupNote(at=17.0, commit=1, directory="/b"))
        found = scrape(node)
        assert found["tsferry_receiver_info", node.engine.uuid, "0.2.0"] == 1
        assert (found["tsferry_receiver_files"], found["tsferry_receiver_devices"]) == (2, 3)
        assert found["tsferry_receiver_quarantined_files", "bad"] == 1
        assert found["tsferry_receiver_ready"] == 1
        assert found["tsferry_receiver_tokens_ending"] == 1
        assert found["tsferry_receiver_token_expiry_timestamp_seconds"] == world.clock() + 2 * DAY
        assert found["tsferry_receiver_backup_timestamp_seconds"] == 17.0
        assert found["tsferry_receiver_loads_total", "loaded"] == 1
        assert found["tsferry_receiver_load_duration_seconds_count"] == 1
        assert found["tsferry_receiver_commits_total"] == node.engine.published().lsn
        assert set(found.of("tsferry_receiver_directory_up").values()) == {1}
        who = ("plant 7", A)
        assert found["tsferry_edge_files", *who] == 2
        assert found["tsferry_edge_quarantined_files", *who] == 1
        assert found["tsferry_edge_late", *who] == 0
        assert not found.has("tsferry_edge_pending_files"), "it has not said"
        assert not found.has("tsferry_receiver_storage_up"), "there is no store"


def test_a_token_that_has_ended_counts_until_it_is_revoked_or_replaced(world: World) -> None:
    expiry, ended = (
        "tsferry_receiver_token_expiry_timestamp_seconds", "tsferry_receiver_tokens_ended",
    )  # fmt: skip
    with world.node() as node:
        end = world.clock() + DAY
        make_token(node.engine, records.SENDER, sender=A, expires=end)
        reader = make_token(node.engine, records.READER, note="prometheus", expires=end + 1)
        make_token(node.engine, records.READER, note="another", expires=end + 2 * DAY)
        world.clock.now += 2 * DAY
        found = scrape(node)
        assert found[ended] == 2
        assert found[expiry] == end + 2 * DAY, "what has ended does not hide what ends next"
        assert found["tsferry_receiver_tokens", "reader"] == 1
        make_token(node.engine, records.SENDER, sender=A, scope=["root.other.**"])
        make_token(node.engine, records.SENDER, sender=A, allow_deletes=False)
        assert scrape(node)[ended] == 2, "neither may do what the one could that has ended"
        make_token(node.engine, records.SENDER, sender=A)
        assert scrape(node)[ended] == 1, "the sender's is replaced"
        revoke_token(node.engine, reader.id)
        found = scrape(node)
        assert found[ended] == 0
        assert found["tsferry_receiver_nodes", "down"] == 0, "there are none, and it says so"


def test_the_ends_of_what_client_certificates_hang_on_are_measured(
    world: World, tmp_path: Path
) -> None:
    with world.node():
        pass
    authority = Authority(tmp_path / "ca")
    listen = msgspec.structs.replace(
        world.config.listen, client_ca=authority.ca, client_crl=authority.crl()
    )
    with look(msgspec.structs.replace(world.config, listen=listen)) as there:
        standing = NodeStanding(None, 0, "0.2.0")
        read = ReceiverReadings(there, RequestTallies(), lambda: standing, most_edges=0)
        found = Scraped(read.text())
    assert found["tsferry_receiver_client_ca_expiry_timestamp_seconds"] > time.time()
    assert found["tsferry_receiver_client_crl_expiry_timestamp_seconds"] > time.time()


def test_what_edges_say_is_measured_and_summed_up(world: World) -> None:
    with world.node() as node:
        for uuid, label in ((A, "plant 7"), (B, "")):
            edge = Edge(node, uuid)
            edge.check()
            node.load.make_known(uuid, f"x_{uuid}", label)
            beat = wire.Heartbeat(
                version="0.2.0",
                pending_files=3,
                pending_bytes=1000,
                complete_until=1_700_000_000_500,
                conflicts=2 if uuid == A else 0,
                round_at=99.0,
                problem="no answer" if uuid == B else "",
                free_bytes=5,
            )
            node.checks.heartbeat(edge.who, uuid, beat)
        world.clock.now += DAY + 1  # type: ignore[attr-defined]
        Edge(node, B).check()
        found = scrape(node)
        assert found["tsferry_receiver_edges"] == 2
        assert found["tsferry_receiver_edges_late"] == 1
        assert found["tsferry_receiver_edges_pending_files"] == 6
        assert found["tsferry_receiver_edges_in_trouble", "conflicts"] == 1
        assert found["tsferry_receiver_edges_of_version", "0.2.0"] == 1
        assert found["tsferry_edge_late", "plant 7", A] == 1
        assert found["tsferry_edge_late", B, B] == 0, "without a label the uuid stands for it"
        assert found["tsferry_edge_trouble_files", "plant 7", A, "conflicts"] == 2
        complete = found["tsferry_edge_complete_until_timestamp_seconds", "plant 7", A]
        assert complete == 1_700_000_000.5
        assert found.of("tsferry_edge_last_round_failed") == {("plant 7", A): 0, (B, B): 1}
        remove_sender(node.operator, OPERATOR, B)
        found = scrape(node)
        assert found["tsferry_receiver_edges"] == 1
        assert found.of("tsferry_edge_late") == {("plant 7", A): 1}


def test_edges_beyond_the_limit_count_in_the_sums_alone(world: World) -> None:
    with world.node() as node:
        for number in range(5):
            uuid = f"{number:x}" + "a" * 31
            Edge(node, uuid).check()
            world.clock.now += 1  # type: ignore[attr-defined]
        found = scrape(node, most=2)
        assert found["tsferry_receiver_edges"] == 5
        assert found["tsferry_receiver_edges_left_out"] == 3
        assert {key[1][0] for key in found.of("tsferry_edge_late")} == {"0", "1"}, "the first"
        assert not scrape(node, most=0).has("tsferry_edge_late")


def test_the_centre_that_has_loaded_something_is_no_edge_that_somebody_waits_for(
    world: World,
) -> None:
    with world.node() as node:
        Edge(node).check()
        Edge(node, B).check()
        remove_sender(node.operator, OPERATOR, B)
        centre = centre_uuid(node.engine.uuid)
        node.engine.commit([records.SenderSeen(centre, CENTRE, "centre")])
        found = scrape(node)
        assert found["tsferry_receiver_edges"] == 1
        assert status(node.operator, None).senders == 1, "what --check calls edges"
        assert found["tsferry_edge_late_after_seconds", CENTRE, centre] == 0, "never"
        heard = {key[1] for key in found.of("tsferry_edge_last_heard_timestamp_seconds")}
        assert heard == {A}
        assert found["tsferry_edge_files", CENTRE, centre] == 0, "its files count beside others"


def test_committed_state_is_read_once_a_commit(world: World, monkeypatch) -> None:
    with world.node() as node:
        Edge(node).check()
        reads = readings(node)
        counted = []
        inner = reads._of_state
        monkeypatch.setattr(reads, "_of_state", lambda *known: counted.append(1) or inner(*known))
        for _ in range(3):
            reads.text()
        assert len(counted) == 1
        Edge(node, B).check()
        assert Scraped(reads.text())["tsferry_receiver_edges"] == 2
        assert len(counted) == 2


def test_names_from_outside_forge_no_line(world: World) -> None:
    evil = 'x"} 1\ntsferry_receiver_ready 0\n\\'
    with world.node() as node:
        edge = Edge(node)
        edge.check()
        node.load.make_known(A, f"x_{A}", evil)
        node.checks.heartbeat(edge.who, A, wire.Heartbeat(version=evil))
        found = scrape(node)
        assert found["tsferry_receiver_ready"] == 1
        assert found.of("tsferry_edge_info") == {(evil, A, evil): 1}


def test_a_directory_without_a_server_can_be_read(world: World) -> None:
    """As a node that only reads is: what only a server knows is left out."""
    with world.node() as node:
        Edge(node).check()
    with look(world.config) as there:
        standing = NodeStanding("stopped", 0, "0.2.0", behind=3.5)
        found = Scraped(
            ReceiverReadings(there, RequestTallies(), lambda: standing, most_edges=9).text()
        )
    assert found["tsferry_receiver_ready"] == 0
    assert found["tsferry_receiver_follow_behind_seconds"] == 3.5
    assert not found.has("tsferry_receiver_uploads")


@pytest.mark.slow
def test_a_scrape_of_many_edges_takes_a_bounded_time(world: World) -> None:
    with world.node() as node:
        uuids = [f"{number:032x}".replace("0" * 16, "a" * 16) for number in range(20_000)]
        ops = [
            records.SenderSeen(uuid=uuid, label=f"edge {uuid[-5:]}", directory=f"x_{uuid}")
            for uuid in uuids
        ]
        node.engine.commit(ops)
        for uuid in uuids:
            node.checks.heard.beaten(uuid, world.clock(), wire.Heartbeat(version="0.2.0"))
        reads = readings(node)
        reads.text()
        begin = time.thread_time()
        text = reads.text()
        assert time.thread_time() - begin < 5
        assert len(text) < 4_000_000
        assert Scraped(text)["tsferry_receiver_edges_left_out"] == 19_000


def test_commits_do_not_wait_while_a_scrape_judges_edges(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world.node() as node:
        Edge(node).check()
        real, held = node.engine.reading, []

        @contextmanager
        def reading() -> Iterator[State]:
            with real() as state:
                held.append(1)
                yield state
                held.pop()

        monkeypatch.setattr(node.engine, "reading", reading)
        judged = []

        def seconds(times: TrueTimes, ts: int) -> float:
            judged.append(bool(held))
            return ts / 1000

        monkeypatch.setattr(TrueTimes, "seconds", seconds)
        presence = readings(node)._read_committed()
        judged.clear()
        into = Readings(RECEIVER_MEASURES)
        node.checks.heard.all = dict  # type: ignore[method-assign]  # of none is anything kept
        readings(node)._put_edges(into, presence)
    assert judged
    assert not any(judged)


def test_tables_are_counted_by_how_they_stand_and_slots_by_the_nodes_that_have_them(
    world: World,
) -> None:
    with world.node() as node:
        edge = Edge(node)
        edge.round({path_of(1): tsfile("root.sg.d1"), path_of(1, sg="root.b"): tsfile("root.b.d1")})
        place_tablets(node.engine, "a" * 32)
        node.engine.commit([records.CacheSlotsSet(1, ["a" * 32], [5], bytes(2 * 1024))])
        with node.engine.reading() as state:
            (one, other) = state.loaded_tables.there()
            state.loaded_tables.standings = {one.id: "altering"}
        found = scrape(node)
        assert found["tsferry_receiver_tables", "altering"] == 1
        assert found["tsferry_receiver_tables", "running"] == 1
        assert found["tsferry_receiver_tables", "deleting"] == 0
        assert found["tsferry_receiver_cache_slots", "a" * 32] == 1024
        assert found["tsferry_receiver_cache_slots_version"] == 1
        node.engine.commit([records.TableDropped(other.id)])
        found = scrape(node)
        assert found["tsferry_receiver_tables", "running"] == 0
        assert found["tsferry_receiver_tables", "deleting"] == 1


def test_storage_nodes_are_counted_and_what_of_their_copies_is_not_as_it_should_be(
    world: World, tmp_path: Path
) -> None:
    with world.node() as node:
        Edge(node).round({path_of(1): tsfile("root.sg.d1")})
        place_tablets(node.engine)  # at one that was never heard
        speaking = SpeakingNode(tmp_path / "speaking")
        speaking.store.put(tablet(5))
        speaking.settle(node.nodes)
        with node.engine.reading() as state:
            (row,), (name,) = state.placement_table.rows.values(), state.files
        node.engine.commit([records.FileReleased(name, row.tablet, 1, row.nodes)])
        (world.data / name).unlink()
        node.copies.doubts.doubt("5" * 32, row.tablet, name)
        node.engine.commit([records.NodeLost("5" * 32)])
        node.copies._looked = None
        found = scrape(node)
        assert found["tsferry_receiver_nodes", "up"] == 1
        assert found["tsferry_receiver_nodes", "down"] == 0
        assert found["tsferry_receiver_nodes", "lost"] == 1
        assert 0 <= found["tsferry_receiver_nodes_longest_silence_seconds"] < 60
        assert found["tsferry_receiver_nodes_unknown_tablets"] == 1
        assert found["tsferry_receiver_copies_doubted"] == 1
        assert found["tsferry_receiver_released_files_nowhere"] == 1
        speaking.close()
