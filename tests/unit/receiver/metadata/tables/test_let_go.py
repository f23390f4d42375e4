"""Notes of what an operator deleted are what a plain list of them is, packed or not."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from common.digests import md5
from receiver.metadata.model import records
from receiver.metadata.state.packed_notes import PackedNotes
from receiver.metadata.state.table_rows import LetGoRow
from receiver.metadata.state.tables.sender_tables import let_go
from receiver.metadata.state.tables.sender_tables.let_go import LetGoTable

SENDERS = ["aa" * 16, "bb" * 16, "cc" * 16]
PATHS = [f"sequence/root.{group}/0/{n % 3}/{n}-{n}-0-0.tsfile" for group in "ab" for n in range(9)]
CONTENTS = [md5(bytes([number])).hexdigest() for number in range(6)]


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(let_go, "_MANY", 4)


def do(table: LetGoTable, op: Any, ts: int) -> None:
    table.operations()[type(op)](op, ts)


def loaded(sender: str, path: str, content: str) -> records.FileLoaded:
    return records.FileLoaded(
        sender=sender,
        path=path,
        physical=path,
        size=1,
        md5=content,
        tail=content[::-1],
        version=4,
        devices=[],
        first=None,
        last=None,
        series=0,
        points=0,
        task="",
    )


def noted(chance: random.Random) -> records.LetGoNoted:
    content = chance.choice(CONTENTS)
    tail = chance.choice([content[::-1], content[::-1], "", "odd"])
    sender, path = chance.choice(SENDERS), chance.choice(PATHS)
    return records.LetGoNoted(sender, path, content, chance.randrange(1, 99), tail)


def lived(chance: random.Random, table: LetGoTable, known: dict[Any, LetGoRow]) -> None:
    """A few dozen operations, and the same of a dictionary."""
    for ts in range(1, chance.randrange(2, 60)):
        kind, note = chance.randrange(8), noted(chance)
        key = note.sender, note.path, note.md5
        if kind == 0:
            do(table, records.LetGoEnded(note.sender, note.path), ts)
            for each in [each for each in known if each[:2] == key[:2]]:
                del known[each]
        elif kind == 1:
            op = loaded(*key)
            do(table, op, ts)
            known.pop(key, None)
            for each, row in [*known.items()]:
                if (row.tail, row.md5) == (op.tail, op.md5):
                    del known[each]
        else:
            do(table, note, ts)
            known[key] = LetGoRow(
                sender=note.sender,
                path=note.path,
                md5=note.md5,
                deleted=note.deleted,
                tail=note.tail,
                created=ts,
                changed=ts,
            )


def ordered(rows: Any) -> list[tuple[Any, ...]]:
    return sorted(
        (row.sender, row.path, row.md5, row.deleted, row.tail, row.created) for row in rows
    )


def copies(table: LetGoTable) -> Iterator[LetGoTable]:
    """The table, and what a checkpoint makes of it."""
    frozen = table.freeze()
    other = LetGoTable()
    sections = {name: memoryview(content) for name, content in frozen.sections()}
    other.thaw(
        [
            PackedNotes.thawed(
                {
                    name.partition(".")[2]: content
                    for name, content in sections.items()
                    if name.startswith(f"{number}.")
                }
            )
            for number in range(len(frozen.packed))
        ]
    )
    for row in frozen.rows:
        other.restore(row)
    yield table
    yield other


@pytest.mark.parametrize("seed", range(30))
def test_packed_notes_are_found_as_a_list_of_them_would_be(seed: int) -> None:
    chance = random.Random(seed)
    table, known = LetGoTable(), dict[Any, LetGoRow]()
    lived(chance, table, known)
    for each in copies(table):
        assert ordered(each) == ordered(known.values())
        assert len(each) == len(known)
        for tail in {*(content[::-1] for content in CONTENTS), "odd"}:
            expected = [row for row in known.values() if row.tail == tail]
            assert ordered(each.of_tail(tail)) == ordered(expected)
        for sender in SENDERS:
            since = chance.randrange(99)
            expected = [r for r in known.values() if r.sender == sender and r.deleted > since]
            assert ordered(each.of(sender, since)) == ordered(expected)
            for path in PATHS:
                for content in CONTENTS:
                    assert each.get(sender, path, content) == known.get((sender, path, content))
        after = dict(known)
        lived(chance, each, after)
        assert ordered(each) == ordered(after.values())


def test_few_tables_are_asked_however_many_notes_there_are() -> None:
    table = LetGoTable()
    for number in range(1, 2000):
        content = md5(number.to_bytes(4, "big")).hexdigest()
        do(table, records.LetGoNoted(SENDERS[0], PATHS[0], content, number, content), number)
    assert (len(table), len(table._packed) < 10) == (1999, True)


def test_a_damaged_table_is_named_not_read() -> None:
    row = LetGoRow(
        sender=SENDERS[0], path=PATHS[0], md5=CONTENTS[0], deleted=1, created=1, changed=1
    )
    table = PackedNotes.of([row, row])
    sections = {name: memoryview(content) for name, content in table.sections(bytes(2))}
    for name in ("deleted", "digests", "names", "ends", "by-path", "left"):
        with pytest.raises(ValueError, match="do not fit"):
            PackedNotes.thawed(sections | {name: sections[name][:-8] or memoryview(b"\0" * 3)})
