from __future__ import annotations

from types import SimpleNamespace

import pytest

from common.durable import Tree
from common.wire import (
    EndedAnswer,
    EndedHere,
    History,
    ListedPage,
    SettledAnswer,
    SettledFile,
    TaskMark,
)
from sender.kept.freed import FreedFile, FreedList, changing_freed
from sender.kept.receiver_file import ReceiverFile
from sender.round.compared_lists.freed_news import forget_settled, freed_pages, lacks_mark
from tests.support import site

HERE = "dc1_5555"
MD5 = "a" * 32
LIMITS = SimpleNamespace(max_page_items=2, max_page_bytes=1 << 20)


class Receiver:
    """Says what is settled, and remembers what it was asked."""

    name = "dc1"

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.files: list[SettledFile] = []
        self.forgotten: set[str] = set()
        self.oldest = 0
        self.pages: list[list[str]] = []
        self.history = History.CONTINUES
        self.client = self

    def patiently(self, call):
        return call()

    def settled(self, after: int, *, of: str | None):
        self.asked.append(after)
        found = [each for each in self.files if each.commit > after]
        yield SettledAnswer(engine="0" * 32, commit=100, files=found, oldest=self.oldest)

    def ended(self, page: ListedPage) -> EndedAnswer:
        assert page.freed
        self.pages.append([each.path for each in page.files])
        return EndedAnswer(
            ended=[
                EndedHere(path=each.path, md5=each.md5, reason="forgotten")
                for each in page.files
                if each.path in self.forgotten
            ]
        )

    def check_request(self, known, look: int):
        return known.last_task

    def check(self, last_task):
        assert last_task is not None
        return SimpleNamespace(engine="0" * 32, history=self.history)


@pytest.fixture
def kept(tmp_path):
    with Tree(tmp_path) as sync:
        memory = ReceiverFile.open(sync, HERE)
        memory.update(engine="0" * 32, last_task=TaskMark(task="1" * 32, commit=40))
        yield SimpleNamespace(sync=sync, directory=HERE, memory=memory)


@pytest.fixture
def receiver():
    return Receiver()


def path(number: int) -> str:
    return f"sequence/root.a/0/0/{number}-{number}-0-0.tsfile"


def freed(kept, number: int, commit: int) -> None:
    with changing_freed(kept.sync, HERE) as found:
        found.add([FreedFile(path(number), MD5, 1, 0, 9, 1_700_000_000, commit)])


def listed(kept) -> list[str]:
    return sorted(each.path for each in FreedList(kept.sync, HERE))


def test_while_nothing_is_remembered_nobody_is_asked(kept, receiver):
    forget_settled(receiver, kept, LIMITS)
    assert receiver.asked == []


def test_what_happened_since_the_last_time_is_asked_for(kept, receiver):
    freed(kept, 1, 50)
    freed(kept, 2, 40)
    receiver.files = [SettledFile(path=path(1), md5=MD5, commit=60)]
    forget_settled(receiver, kept, LIMITS)
    assert listed(kept) == [path(2)]
    forget_settled(receiver, kept, LIMITS)
    assert receiver.asked == [40, 100]
    assert kept.memory.now.settled == 100


def test_what_happened_before_a_file_was_freed_concerns_another(kept, receiver):
    freed(kept, 1, 50)
    freed(kept, 2, 70)
    receiver.files = [SettledFile(path=path(2), md5=MD5, commit=60)]
    forget_settled(receiver, kept, LIMITS)
    assert listed(kept) == [path(1), path(2)]


def test_where_it_may_have_forgotten_something_since_it_is_asked_what_it_knows(kept, receiver):
    for number in (1, 2, 3):
        freed(kept, number, 50)
    receiver.forgotten, receiver.oldest = {path(3)}, 60
    forget_settled(receiver, kept, LIMITS)
    assert [len(each) for each in receiver.pages] == [2, 1]
    assert listed(kept) == [path(1), path(2)]
    forget_settled(receiver, kept, LIMITS)  # behind 100 nothing is forgotten yet
    assert len(receiver.pages) == 2


def test_of_a_long_list_one_part_is_in_memory_at_a_time(kept, receiver, monkeypatch):
    for number in range(9):
        freed(kept, number, 50)
    read, read_before = FreedList._read, []
    parts: list[str] = []

    def counted(self: FreedList, name: str) -> list[FreedFile]:
        parts.append(name)
        return read(self, name)

    def ended(page: ListedPage) -> EndedAnswer:
        read_before.append(len(parts))
        return EndedAnswer(ended=[])

    monkeypatch.setattr(FreedList, "_read", counted)
    monkeypatch.setattr(receiver, "ended", ended)
    kept.memory.update(settled=50)
    receiver.oldest = 60
    forget_settled(receiver, kept, LIMITS)
    assert read_before == [2, 4, 6, 8, 9]


def test_a_receiver_that_is_restored_while_it_is_asked_settles_nothing(kept, receiver):
    """What it does not know it may have had."""
    freed(kept, 1, 50)
    receiver.forgotten, receiver.oldest = {path(1)}, 60
    receiver.history = History.REWOUND
    forget_settled(receiver, kept, LIMITS)
    assert (len(receiver.pages), listed(kept)) == (1, [path(1)])


def test_without_a_task_of_its_past_nothing_that_is_unknown_counts_as_deleted(kept, receiver):
    freed(kept, 1, 50)
    receiver.forgotten, receiver.oldest = {path(1)}, 60
    mark = kept.memory.now.last_task
    kept.memory.update(last_task=None)
    assert lacks_mark(kept)
    forget_settled(receiver, kept, LIMITS)
    assert (receiver.pages, listed(kept)) == ([], [path(1)])
    kept.memory.update(last_task=mark)
    assert not lacks_mark(kept)
    forget_settled(receiver, kept, LIMITS)
    assert listed(kept) == []


def test_another_content_under_the_path_is_another_file(kept, receiver):
    freed(kept, 1, 50)
    receiver.files = [SettledFile(path=path(1), md5="b" * 32, commit=60)]
    forget_settled(receiver, kept, LIMITS)
    assert listed(kept) == [path(1)]


def test_once_nothing_is_remembered_the_next_list_begins_anew(kept, receiver):
    freed(kept, 1, 50)
    receiver.files = [SettledFile(path=path(1), md5=MD5, commit=60)]
    forget_settled(receiver, kept, LIMITS)
    forget_settled(receiver, kept, LIMITS)
    assert kept.memory.now.settled == 0
    freed(kept, 1, 90)
    forget_settled(receiver, kept, LIMITS)
    assert receiver.asked == [50, 90]


@pytest.mark.parametrize(("value", "told"), [(0, []), (1, ["1-1-0.tsfile"])])
def test_what_has_the_path_and_the_size_of_a_freed_file_need_not_be_it(tmp_path, value, told):
    edge = site.Site(tmp_path)
    edge.put(site.path(), site.tsfile())
    was = edge.entry(edge.scan().files[site.path()])
    edge.put(site.path(), site.tsfile(value=value))
    with Tree(edge.schema_dir) as sync:
        with changing_freed(sync, HERE) as found:
            found.add([FreedFile(was.path.text, was.md5, was.size, 0, 9, 1_700_000_000, 50)])
        facts = edge.scanner.facts(edge.dirs)
        kept = SimpleNamespace(sync=sync, directory=HERE, facts=facts)
        pages = list(freed_pages(kept, edge.scan(), 10))
    assert [each.path.rpartition("/")[2] for page in pages for each in page.files] == told
