"""Cursors: tokens of pages, that can be used twice, expire, and are bounded in number."""

import threading

import pytest

from common.errors import GoneError
from receiver.metadata.engine import Engine
from receiver.metadata.model.errors import NotATagError
from receiver.metadata.query.answers import Answer
from receiver.metadata.query.cursors import Cursors
from receiver.metadata.query.questions import ShowTimeseries, TagFilter
from receiver.metadata.sql.executing import execute


@pytest.fixture
def engine(tmp_path):
    with Engine.open(tmp_path, background=False) as engine:
        execute(engine, "set storage group to root.sg")
        series = ", ".join(f"s{n} INT32" for n in range(10))
        execute(engine, f"create aligned timeseries root.sg.d({series})")
        yield engine


@pytest.fixture
def now():
    return [0.0]


@pytest.fixture
def cursors(now):
    return Cursors(lambda: now[0], most=3, idle=100)


def names(page):
    return [row[0].removeprefix("root.sg.d.") for row in page.rows]


def test_each_page_names_the_next(engine, cursors):
    answer = Answer(engine, ShowTimeseries())
    page = cursors.open(answer, 4)
    found = [names(page)]
    while page.next is not None:
        got, page = cursors.next(page.next)
        assert got is answer
        found.append(names(page))
    assert found == [["s0", "s1", "s2", "s3"], ["s4", "s5", "s6", "s7"], ["s8", "s9"]]


def test_a_page_can_be_asked_for_again_until_the_next_one_is(engine, cursors):
    first = cursors.open(Answer(engine, ShowTimeseries()), 4)
    second = cursors.next(first.next)[1]
    execute(engine, "delete timeseries root.sg.d.s5")
    assert cursors.next(first.next)[1] == second
    third = cursors.next(second.next)[1]
    assert names(third) == ["s8", "s9"]
    assert cursors.next(second.next)[1] == third
    with pytest.raises(GoneError, match="gone on"):
        cursors.next(first.next)


def test_tokens_of_nobody_are_refused(engine, cursors):
    page = cursors.open(Answer(engine, ShowTimeseries()), 4)
    name = page.next.partition("-")[0]
    for token in ("", "x", f"{name}-0", f"{name}-7", f"{name}-", f"{name}--1", f"{'0' * 32}-1"):
        with pytest.raises(GoneError):
            cursors.next(token)
    assert names(cursors.next(page.next)[1]) == ["s4", "s5", "s6", "s7"]


def test_a_cursor_that_nobody_uses_expires(engine, cursors, now):
    kept = cursors.open(Answer(engine, ShowTimeseries()), 2)
    left = cursors.open(Answer(engine, ShowTimeseries()), 2)
    for _ in range(3):
        now[0] += 60
        kept = cursors.next(kept.next)[1]
    with pytest.raises(GoneError, match="not used for 100 seconds"):
        cursors.next(left.next)
    assert len(cursors) == 1


def test_the_one_that_rested_longest_makes_room(engine, cursors):
    pages = [cursors.open(Answer(engine, ShowTimeseries()), 2) for _ in range(3)]
    cursors.next(pages[0].next)
    cursors.open(Answer(engine, ShowTimeseries()), 2)
    assert len(cursors) == 3
    cursors.next(pages[2].next)
    with pytest.raises(GoneError):
        cursors.next(pages[1].next)


def test_a_closed_one_is_gone_and_an_answer_that_ended_needs_none(engine, cursors):
    page = cursors.open(Answer(engine, ShowTimeseries()), 4)
    cursors.close(page.next)
    cursors.close(page.next)
    with pytest.raises(GoneError):
        cursors.next(page.next)
    assert cursors.open(Answer(engine, ShowTimeseries()), 11).next is None
    with pytest.raises(NotATagError):
        cursors.open(Answer(engine, ShowTimeseries(where=TagFilter("a", "b"))), 4)
    assert len(cursors) == 0


def test_the_same_page_for_many_at_once_is_the_same(engine, cursors):
    page = cursors.open(Answer(engine, ShowTimeseries()), 4)
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(cursors.next(page.next)[1])) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [found[0]] * 8
    assert names(found[0]) == ["s4", "s5", "s6", "s7"]
