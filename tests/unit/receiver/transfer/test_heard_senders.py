"""What is kept of senders' signs of life, over a restart and a power cut."""

from __future__ import annotations

import json

from common import wire
from receiver.node import Node
from receiver.operator.edges.senders import list_running_senders
from receiver.transfer import heard_senders
from receiver.transfer.heard_senders import HEARD_FILE, HeardSender, HeardSenders, read_heard
from tests.support.node_world import A, B, Edge, World

BEAT = wire.Heartbeat(version="0.2.0", label="plant 7", pending_files=3, complete_until=17)


def test_what_a_sender_said_last_outlives_the_receiver(world: World) -> None:
    with world.node() as node:
        edge = Edge(node)
        edge.check()
        node.checks.heartbeat(edge.who, A, BEAT)
        at = world.clock()
    world.clock.now += 7200.0  # type: ignore[attr-defined]
    with world.node() as node:
        (view,) = list_running_senders(node.operator)
        assert (view.heartbeat, view.heartbeat_at, view.heard_at) == (BEAT, at, at)
        assert view.version == "0.2.0"


def test_a_check_is_a_sign_of_life_and_forgets_no_heartbeat(world: World) -> None:
    with world.node() as node:
        edge = Edge(node)
        edge.check()
        node.checks.heartbeat(edge.who, A, BEAT)
        at = world.clock()
        world.clock.now += 60.0  # type: ignore[attr-defined]
        edge.check()
        (view,) = list_running_senders(node.operator)
        assert (view.heartbeat_at, view.heard_at, view.heartbeat) == (at, at + 60.0, BEAT)


def test_strangers_take_no_room(node: Node) -> None:
    node.checks.heartbeat(Edge(node).who, A, BEAT)
    assert node.checks.heard.all() == {}


def test_long_texts_are_cut(node: Node) -> None:
    edge = Edge(node)
    edge.check()
    long = wire.Heartbeat(
        version="9" * 9999, label="l" * 9999, state="s" * 9999, problem="p" * 9999
    )
    node.checks.heartbeat(edge.who, A, long)
    found = node.checks.heard.of(A)
    assert found is not None
    assert len(wire.encode(found.beat)) < 1000


def test_it_is_one_write_whatever_was_heard_and_none_without_news(tmp_path) -> None:
    heard = HeardSenders(tmp_path)
    assert heard.write() == 0
    for number in range(1000):
        heard.beaten(A, float(number), BEAT)
    heard.checked(B, 5.0, "0.1.0")
    assert 0 < heard.write() < 1000
    assert heard.write() == 0
    assert read_heard(tmp_path) == {
        A: HeardSender(sender=A, at=999.0, version="0.2.0", beat=BEAT, beat_at=999.0),
        B: HeardSender(sender=B, at=5.0, version="0.1.0"),
    }


def test_a_damaged_file_is_no_reason_not_to_start(tmp_path, caplog) -> None:
    for text in ("", "{", '{"version":1}', '{"version":2,"heard":[]}', "[" * 100_000, '"\ud800'):
        (tmp_path / HEARD_FILE).write_bytes(text.encode("utf-8", "surrogatepass"))
        heard = HeardSenders(tmp_path)
        assert heard.all() == {}
        assert "not known when senders were heard" in caplog.text
        caplog.clear()
    heard.checked(A, 1.0, "0")
    heard.close()
    assert json.loads((tmp_path / HEARD_FILE).read_bytes())["heard"][0]["sender"] == A


def test_what_cannot_be_written_is_written_later_and_said_once(
    tmp_path, caplog, monkeypatch
) -> None:
    heard = HeardSenders(tmp_path)
    heard.checked(A, 1.0, "0")

    def full(*_args, **_more):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(heard_senders.Tree, "write_atomic", full)
        assert [heard.write(), heard.write()] == [0, 0]
    assert caplog.text.count("cannot be written") == 1
    assert heard.write() > 0
    assert set(read_heard(tmp_path) or ()) == {A}


def test_the_thread_writes_by_itself(tmp_path, monkeypatch) -> None:
    from tests.support.web import until

    monkeypatch.setattr(heard_senders, "_EVERY", 0.01)
    heard = HeardSenders(tmp_path)
    heard.start()
    try:
        heard.checked(A, 1.0, "0")
        until(lambda: read_heard(tmp_path), "a file")
    finally:
        heard.close()
