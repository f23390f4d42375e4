"""What people read has the times that commits stand for, once the clock is corrected."""

from __future__ import annotations

import datetime
import io

import pytest

from receiver.cli.shell.sqlformat import output
from receiver.cli.showing import commit_time, moment
from receiver.metadata.log.journal import JOURNAL
from receiver.metadata.model import records
from receiver.metadata.model.errors import HistoryGoneError
from receiver.node import Node
from receiver.operator.edges.lost import list_lost
from receiver.operator.edges.owners import list_owners, set_owner
from receiver.operator.edges.senders import list_senders
from receiver.operator.edges.tokens import list_tokens, make_token
from receiver.operator.status import running_status
from receiver.operator.stored.files import list_files
from receiver.operator.stored.quarantine import list_quarantine
from receiver.operator.stored.retired import list_retired
from tests.support.node_world import OPERATOR, Clock, Edge, World, path_of, tsfile

TRUE = 1_800_000_000.0
AHEAD = 10_000_000.0


@pytest.fixture
def node(tmp_path):
    """A receiver that worked by a clock far ahead, which an operator has put right since."""
    wall, steady = Clock(TRUE + AHEAD), Clock(1000.0)
    world = World(tmp_path, clock=wall, steady=steady)
    with world.node() as node:
        edge = Edge(node)
        edge.round({path_of(number): tsfile(first=number * 100) for number in (1, 2, 3)})
        edge.round({}, deleted=[path_of(2)])
        bad = list_files(node.operator).files[0].physical
        node.engine.commit([records.FileQuarantined(bad, "rotten")])
        node.engine.commit([records.FileVerified([list_files(node.operator).files[0].physical])])
        make_token(node.engine, role="reader")
        for each in (wall, steady):
            each.now += 60
        wall.now -= AHEAD
        node.engine.confirm_clock()
        yield node


def test_lists_show_them(node: Node) -> None:
    there, engine = node.operator, node.engine
    found = {
        "file": list_files(there).files[0].created_at,
        "verified": list_files(there).files[0].verified_at,
        "owner": list_owners(there).owners[0].since_at,
        "quarantine": list_quarantine(engine)[0].since_at,
        "retired": list_retired(there).files[0].since_at,
        "sender": list_senders(engine)[0].last_commit_at,
        "token": list_tokens(engine)[0].created_at,
        "status": running_status(there, None).oldest_verification_at,
        "newest": running_status(there, None).newest_commit_at,
    }
    off = {name: at for name, at in found.items() if at is None or abs(at - TRUE) > 120}
    assert off == {}
    assert list_lost(engine) == []


def test_a_table_shows_them(node: Node) -> None:
    (row, *_) = list_files(node.operator).files
    assert commit_time(row.created, row.created_at)[:10] == moment(TRUE)[:10]
    assert commit_time(row.created)[:10] != moment(TRUE)[:10]
    assert commit_time(0, 0.0) == "-"
    stream = io.StringIO()
    out = output("table", stream, node.engine.times)
    out.begin(["created"])
    out.page([(row.created,)])
    out.done("done", row.created)
    assert stream.getvalue().count(moment(TRUE)[:10]) == 2


def times_of(node: Node) -> list[datetime.datetime]:
    lines = (node.config.schema_dir / JOURNAL).read_text().splitlines()[1:]
    return [datetime.datetime.fromisoformat(line.split(" ", 1)[0]) for line in lines]


@pytest.mark.parametrize("further", [False, True])
def test_the_journal_of_owners_has_them(node: Node, further: bool) -> None:
    if further:
        set_owner(node.engine, OPERATOR, "root.sg.d1", None)
    found = times_of(node)
    assert len(found) == (2 if further else 1)
    assert all(abs(each.timestamp() - TRUE) < 120 for each in found)
    commit = int((node.config.schema_dir / JOURNAL).read_text().splitlines()[1].split(" ")[1])
    assert abs((commit >> 18) / 1000 - TRUE - AHEAD) < 120, "the commit is what it was"


def test_an_error_about_the_history_has_them(node: Node) -> None:
    node.engine.window.move(node.engine.newest_commit)
    with pytest.raises(HistoryGoneError, match=moment_of(TRUE)):
        node.engine.check_answerable(1)


def moment_of(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).date().isoformat()
