"""The step `schema` of a round: what goes wrong with it keeps no file back."""

from __future__ import annotations

import pytest

from common import wire
from common.errors import (
    NoSpaceError,
    OffsetError,
    ProtocolError,
    StoppedError,
    TsferryError,
    UnreachableError,
)
from common.formats.schemawire import decode_block
from sender.schema.notes import SchemaMemory, SchemaNotes
from sender.schema.shipping import open_schema
from sender.schema.standing import schema_lines, schema_standing
from tests.support.edge import Edge

LIMITS = wire.Limits(
    max_file_bytes=1 << 30,
    max_chunk_bytes=1 << 20,
    max_batch_bytes=1 << 20,
    max_page_items=1000,
    max_page_bytes=1 << 20,
)
LOG = "".join(f"0,root.a.d1.s{number},1,0,0,,,\n" for number in range(100))


class Receiver:
    """Takes blocks as a receiver does; `errors` are what it answers first."""

    def __init__(self, *errors: TsferryError) -> None:
        self.errors = list(errors)
        self.data = b""
        self.calls = 0

    def schema_block(self, task: str, epoch: str | None, body: bytes) -> wire.SchemaAnswer:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        block = decode_block(body)
        if block.head.at == 0:
            self.data = b""
        assert block.head.at == len(self.data)
        self.data += block.data
        return wire.SchemaAnswer(size=len(self.data))


@pytest.fixture
def edge(tmp_path):
    made = Edge(tmp_path, "http://127.0.0.1:9", transfer={"chunk_bytes": 4096, "max_retries": 3})
    (made.schema / "mlog.txt").write_text(LOG)
    return made


def check(position: wire.SchemaPosition | None = None, *, schema: bool = True) -> wire.CheckAnswer:
    return wire.CheckAnswer(
        protocol=1,
        version="1",
        engine="e",
        newest_commit=1,
        epoch=None,
        history=wire.History.CONTINUES,
        limits=LIMITS,
        schema=schema,
        schema_position=position,
    )


def ship(edge, receiver, *, position=None, staged=None):
    """Ship what is due; (end, report, notes)."""
    remote = edge.remote()
    remote.client = receiver
    with remote.sync_tree() as sync:
        with open_schema(remote, sync, check(position), whole=False) as schema:
            assert schema is not None
            end = schema.ship("7" * 32, "1.x", staged) if schema.due else None
            if end is not None:
                schema.conclude(
                    wire.SchemaPosition(identity=end.identity, offset=end.offset, mark=end.mark)
                )
        return end, schema.report, SchemaNotes.open(sync, remote.directory).now


def test_the_whole_log_arrives_and_is_noted(edge):
    receiver = Receiver()
    end, report, notes = ship(edge, receiver)
    assert receiver.data.decode() == LOG
    assert receiver.calls > 1
    assert (end.base, end.size, end.offset, end.news) == (0, len(LOG), len(LOG), len(LOG))
    assert (report.bytes, report.problem) == (len(LOG), None)
    assert notes.position.offset == len(LOG)
    assert (notes.problem, notes.shipping) == (None, None)
    end, _, _ = ship(edge, receiver, position=notes.position)
    assert end is None


@pytest.mark.parametrize("error", [ProtocolError("no"), NoSpaceError("full", retry_after=60)])
def test_a_schema_that_is_refused_is_noted_and_not_waited_for(edge, error):
    receiver = Receiver(*[error] * 10)
    end, report, notes = ship(edge, receiver)
    assert end is None
    assert receiver.calls == 1
    assert report.problem == notes.problem == error.message


def test_a_broken_line_is_tried_again(edge):
    receiver = Receiver(UnreachableError("broken"), UnreachableError("broken"))
    end, report, _ = ship(edge, receiver)
    assert end is not None
    assert report.problem is None
    assert receiver.data.decode() == LOG


def test_a_receiver_that_has_another_log_by_now_gets_all_from_the_begin(edge):
    receiver = Receiver()
    ship(edge, receiver)
    receiver = Receiver(OffsetError("elsewhere", extra={"offset": 0}))
    end, _, _ = ship(edge, receiver)
    assert end is not None
    assert receiver.data.decode() == LOG


def test_who_is_told_to_stop_stops(edge):
    edge.stop.set()
    with pytest.raises(StoppedError):
        ship(edge, Receiver())


def test_a_receiver_that_takes_no_schema_is_sent_none(edge):
    remote = edge.remote()
    with (
        remote.sync_tree() as sync,
        open_schema(remote, sync, check(schema=False), whole=False) as it,
    ):
        assert it is None


def test_a_receiver_that_did_not_apply_it_is_sent_it_again(edge):
    remote = edge.remote()
    remote.client = Receiver()
    with (
        remote.sync_tree() as sync,
        open_schema(remote, sync, check(), whole=False) as schema,
    ):
        schema.ship("7" * 32, "1.x", None)
        schema.conclude(None)
        assert "again" in schema.report.problem
        assert schema_standing(SchemaNotes.open(sync, remote.directory).now)["problem"]
    end, report, _ = ship(edge, Receiver())
    assert end is not None
    assert report.problem is None


def test_a_log_that_cannot_be_read_is_named(edge, monkeypatch):
    def broken(*_, **__):
        raise PermissionError(13, "Permission denied", "mlog.txt")

    monkeypatch.setattr("sender.schema.text_log.TextLog.open", broken)
    remote = edge.remote()
    with remote.sync_tree() as sync:
        with open_schema(remote, sync, check(), whole=False) as schema:
            assert schema is not None
            assert "cannot be read" in schema.report.problem, "the round tells it, as status does"
            assert not schema.due
        assert "cannot be read" in SchemaNotes.open(sync, remote.directory).now.problem
        monkeypatch.undo()
        (edge.schema / "mlog.txt").unlink()
        with open_schema(remote, sync, check(), whole=False) as schema:
            assert schema is None
        assert SchemaNotes.open(sync, remote.directory).now.problem is None


def test_status_has_no_line_where_there_never_was_a_schema():
    assert schema_standing(SchemaMemory()) is None
    assert schema_lines(None) == []
