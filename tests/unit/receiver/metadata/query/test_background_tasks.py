"""`show tasks`: what waits, runs and has ended, now and as it was."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from receiver.background.work_queue import WorkQueue
from receiver.metadata.engine import Engine
from receiver.metadata.model.errors import HistoryGoneError
from receiver.metadata.model.records import WorkPlace
from receiver.metadata.sql.executing import execute
from receiver.metadata.state.tables import background_work
from receiver.txn.txn_manager import TxnManager
from receiver.txn.txn_session import TxnSession


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine.open(tmp_path, background=False) as engine:
        yield engine


@pytest.fixture
def queue(engine: Engine) -> WorkQueue:
    return WorkQueue(engine)


def shown(engine: Engine, at: int | None = None, more: str = "") -> list[tuple[object, ...]]:
    when = "" if at is None else f" at {at}"
    return [(row[2], *row[5:7], row[9]) for row in execute(engine, f"show tasks{more}{when}")]


def test_a_task_is_shown_with_what_it_has_for_itself(engine: Engine, queue: WorkQueue) -> None:
    ident = queue.add(
        "merge", b"", [WorkPlace("root.a"), WorkPlace("root.b", "7", "f")], priority=3
    )
    answer = execute(engine, "show tasks")
    assert answer.columns == (
        "task", "kind", "state", "scope", "priority", "attempt", "executor", "created", "changed",
        "reason",
    )  # fmt: skip
    assert list(answer) == [
        (ident, "merge", "pending", "root.a, root.b 7 f", 3, 0, "", ident, ident, "")
    ]


def test_each_moment_is_shown_as_it_was(engine: Engine, queue: WorkQueue) -> None:
    before = engine.newest_commit
    expected: list[tuple[int, list[tuple[object, ...]]]] = [(before, [])]
    queue.add("merge", b"", [WorkPlace("root.a")])
    expected.append((engine.newest_commit, shown(engine)))
    for end in ("pending", "failed"):
        row = queue.take("x", ["merge"])
        assert row is not None
        expected.append((engine.newest_commit, shown(engine)))
        queue.end(row, end, reason=f"so {end}")  # type: ignore[arg-type]
        expected.append((engine.newest_commit, shown(engine)))
    queue.add("merge", b"", [WorkPlace("root.b")])
    expected.append((engine.newest_commit, shown(engine)))
    assert [len(rows) for _, rows in expected] == [0, 1, 1, 1, 1, 1, 2]
    engine.checkpoint()
    for at, rows in expected:
        assert shown(engine, at) == rows, at


def test_a_long_list_comes_in_pages_of_one_commit(engine: Engine, queue: WorkQueue) -> None:
    for at in range(7):
        queue.add("merge", b"", [WorkPlace("root.a", str(at))])
    answer = execute(engine, "show tasks", fetch_size=3)
    pages = []
    while page := answer.fetch():
        pages.append(len(page))
        queue.take("x", ["merge"])
    assert pages == [3, 3, 1]
    assert len(shown(engine, more=" limit 2 offset 4")) == 2
    again = execute(engine, "show tasks", at=answer.commit)
    assert {row[2] for row in again} == {"pending"}


def test_what_was_open_then_and_is_forgotten_now_is_no_silence(
    engine: Engine, queue: WorkQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background_work, "KEPT_WORK", 2)
    queue.add("merge", b"", [WorkPlace("root.a")])
    then = engine.newest_commit
    for at in range(3):
        row = queue.take("x", ["merge"])
        assert row is not None
        queue.end(row, "done")
        ended = engine.newest_commit
        queue.add("merge", b"", [WorkPlace("root.a", str(at))])
    row = queue.take("x", ["merge"])
    assert row is not None
    with pytest.raises(HistoryGoneError, match="not known any more"):
        shown(engine, then)
    assert len(shown(engine, ended)) == 2


def test_a_transaction_shows_tasks_as_they_were_when_it_began(
    engine: Engine, queue: WorkQueue
) -> None:
    queue.add("merge", b"", [WorkPlace("root.a")])
    session = TxnSession(engine, TxnManager(engine))
    session.run("begin")
    assert len(list(session.run("show tasks"))) == 1
    queue.add("merge", b"", [WorkPlace("root.b")])
    assert len(list(session.run("show tasks"))) == 1
    session.run("set storage group to root.c")
    assert len(list(session.run("show tasks"))) == 1
    session.run("rollback")
