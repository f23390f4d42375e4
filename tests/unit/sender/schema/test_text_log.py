"""What of a local schema log is to be sent, from what the receiver has of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import xxhash

from common.durable import Tree
from common.errors import UnsafePathError
from common.formats.tlogtext import SLOT, write_slot
from common.wire import SchemaKind, SchemaPosition, SchemaStaged
from sender.schema.beside import MLOG, TLOG
from sender.schema.gathered_log import ChangedError
from sender.schema.notes import SchemaNotes
from sender.schema.text_log import TextLog, TextPlan

ENDPOINT = "127.0.0.1_5555"
NOW = 2_000_000_000 * 10**9
SERIES = "".join(f"0,root.a.d1.s{each},1,0,0,,,\n" for each in range(400))


class World:
    """A schema directory, and what the receiver has applied of its log."""

    def __init__(self, root: Path) -> None:
        self.dir = root / "schema"
        self.dir.mkdir()
        self.sync = Tree(self.dir / "sync", create=True)
        self.position: SchemaPosition | None = None

    @property
    def notes(self) -> SchemaNotes:
        return SchemaNotes.open(self.sync, ENDPOINT)

    def mlog(self, text: str, *, more: bool = False) -> None:
        with (self.dir / "mlog.txt").open("a" if more else "w") as file:
            file.write(text)

    def tlog(self, *tags: dict[str, str]) -> None:
        (self.dir / "tlog.txt").write_bytes(b"".join(write_slot(each, {}) for each in tags))

    def plan(self, *, whole: bool = False) -> TextPlan | None:
        with TextLog.open(self.dir, clock_ns=lambda: NOW) as log:
            assert log is not None
            return log.plan(self.position, self.notes, whole=whole)

    def ship(self, *, whole: bool = False) -> tuple[TextPlan | None, bytes, dict[int, bytes]]:
        """Carry the plan out, as far as the receiver is concerned."""
        with TextLog.open(self.dir, clock_ns=lambda: NOW) as log:
            assert log is not None
            plan = log.plan(self.position, self.notes, whole=whole)
            data, slots = b"", {}
            if plan is not None:
                for at, piece, found in log.blocks(plan, 0, 1000):
                    assert at == len(data)
                    data += piece
                    slots.update(found)
                self.position = SchemaPosition(
                    identity=plan.identity, offset=plan.offset, mark=log.mark(plan)
                )
        return plan, data, slots


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.sync.close()


def test_without_a_log_there_is_nothing(world: World) -> None:
    with TextLog.open(world.dir) as log:
        assert log is None


def test_the_first_time_the_whole_log_is_sent(world: World) -> None:
    world.mlog(SERIES)
    plan, data, _ = world.ship()
    assert plan is not None
    assert (plan.base, plan.size, plan.news) == (0, len(SERIES), len(SERIES))
    assert data.decode() == SERIES
    assert world.plan() is None


def test_a_torn_last_line_waits_for_its_end(world: World) -> None:
    world.mlog("2,root.a\n2,ro")
    _, data, _ = world.ship()
    assert data == b"2,root.a\n"
    assert world.plan() is None
    world.mlog("ot.b\n", more=True)
    plan, data, _ = world.ship()
    assert plan is not None
    assert (plan.base, data) == (9, b"2,root.b\n")


def test_a_log_without_a_whole_line_is_none(world: World) -> None:
    world.mlog("2,root.a")
    assert world.plan() is None
    world.mlog("x" * 10_000)
    assert world.plan() is None


def test_what_the_log_has_gained_is_sent_under_its_identity(world: World) -> None:
    world.mlog(SERIES)
    first, _, _ = world.ship()
    world.mlog("1,root.a.d1.s1\n", more=True)
    plan, data, _ = world.ship()
    assert first is not None
    assert plan is not None
    assert (plan.identity, plan.base, plan.news) == (first.identity, len(SERIES), len(SERIES))
    assert data == b"1,root.a.d1.s1\n"
    assert plan.reason is None


@pytest.mark.parametrize(
    "text",
    [
        SERIES[: len(SERIES) // 2],  # shrunken
        "2,root.b\n" + SERIES,  # another begin
        SERIES[:-30] + "0,root.a.d1.other,1,0,0,,,\n" * 3,  # another end, longer
        SERIES.replace("s", "t"),  # as long, another content
    ],
)
def test_a_log_that_shrank_or_was_replaced_is_sent_whole_under_a_new_identity(
    world: World, text: str
) -> None:
    world.mlog(SERIES)
    first, _, _ = world.ship()
    world.mlog(text)
    plan, data, _ = world.ship()
    assert first is not None
    assert plan is not None
    assert plan.reason is not None
    assert plan.identity != first.identity
    end = text.rfind("\n") + 1
    assert (plan.base, plan.news, data.decode()) == (0, end, text[:end])
    assert world.plan() is None


def test_a_log_that_came_back_as_it_was_first_sent_has_yet_another_identity(world: World) -> None:
    world.mlog(SERIES)
    first, _, _ = world.ship()
    world.mlog(SERIES, more=True)
    world.ship()
    world.mlog(SERIES)
    plan, _, _ = world.ship()
    assert first is not None
    assert plan is not None
    assert (plan.base, plan.size) == (0, len(SERIES))
    assert plan.identity != first.identity


def test_an_emptied_log_waits_for_its_first_line(world: World) -> None:
    world.mlog(SERIES)
    world.ship()
    world.mlog("")
    assert world.plan() is None
    world.mlog("1,root.a.d1.s2\n")
    plan, data, _ = world.ship()
    assert plan is not None
    assert (plan.base, data) == (0, b"1,root.a.d1.s2\n")


def test_tags_that_were_changed_in_place_send_the_log_again(world: World) -> None:
    world.mlog("0,root.a.d1.s1,1,0,0,,,0\n1,root.a.d1.s9\n")
    world.tlog({"k": "1"})
    _, _, slots = world.ship()
    assert slots == {0: write_slot({"k": "1"}, {}, None)}
    assert world.plan() is None
    world.tlog({"k": "2"})
    world.mlog("1,root.a.d1.s8\n", more=True)
    plan, data, slots = world.ship()
    assert plan is not None
    assert plan.base == 0
    assert data[plan.news :] == b"1,root.a.d1.s8\n"
    assert slots == {0: write_slot({"k": "2"}, {}, None)}
    assert world.plan() is None


def test_a_tlog_that_only_grew_sends_nothing_again(world: World) -> None:
    world.mlog("0,root.a.d1.s1,1,0,0,,,0\n")
    world.tlog({"k": "1"})
    world.ship()
    world.tlog({"k": "1"}, {"k": "2"})
    assert world.plan() is None
    world.mlog(f"12,root.a.d1.s2,{SLOT}\n", more=True)
    plan, _, slots = world.ship()
    assert plan is not None
    assert plan.base > 0
    assert slots == {SLOT: write_slot({"k": "2"}, {}, None)}


def test_a_slot_that_is_not_there_is_left_out(world: World) -> None:
    world.mlog("0,root.a.d1.s1,1,0,0,,,0\n0,root.a.d1.s2,1,0,0,,,70000\n12,root.a.d1.s1,x\n")
    _, _, slots = world.ship()
    assert slots == {}
    world.tlog({"k": "1"})
    _, _, slots = world.ship()
    assert list(slots) == [0]


def test_a_slot_longer_than_usual_travels_whole(world: World) -> None:
    world.mlog("0,root.a.d1.s1,1,0,0,,,0\n")
    long = write_slot({"k": "v" * 5000}, {}, None)
    (world.dir / "tlog.txt").write_bytes(long)
    _, _, slots = world.ship()
    assert slots == {0: long}


def test_the_operator_can_have_all_sent_again(world: World) -> None:
    world.mlog(SERIES)
    world.ship()
    world.mlog("1,root.a.d1.s1\n", more=True)
    plan, data, _ = world.ship(whole=True)
    assert plan is not None
    assert plan.base == 0
    assert data[plan.news :] == b"1,root.a.d1.s1\n"


def test_a_position_of_something_else_is_not_gone_on_from(world: World) -> None:
    world.mlog(SERIES)
    world.position = SchemaPosition(identity="engine-x", offset=5)
    plan = world.plan()
    assert plan is not None
    assert plan.base == 0


def test_positions_may_be_beyond_32_bits(world: World) -> None:
    offset = (5 << 30) + len("2,root.a\n")
    with (world.dir / "mlog.txt").open("wb") as file:  # sparse: nothing is written in between
        file.write(b"2,root.a\n")
        file.seek(offset - 9)
        file.write(b"2,root.b\n")
    with TextLog.open(world.dir) as log:
        assert log is not None
        assert log.end == offset
        plan = TextPlan("i", 0, offset, 0, (0, ""))
        world.position = SchemaPosition(identity="i", offset=offset, mark=log.mark(plan))
    world.mlog("2,root.c\n", more=True)
    plan, data, _ = world.ship()
    assert plan is not None
    assert (plan.base, data) == (offset, b"2,root.c\n")


# -- going on in the middle ----------------------------------------------------------------------


def staged(plan: TextPlan, size: int, text: str) -> SchemaStaged:
    return SchemaStaged(
        kind=SchemaKind.TEXT,
        identity=plan.identity,
        base=plan.base,
        size=size,
        digest=xxhash.xxh3_128_hexdigest(text[plan.base : plan.base + size].encode()),
    )


def test_what_was_begun_is_gone_on_with_though_the_log_has_grown(world: World) -> None:
    world.mlog(SERIES)
    first = world.plan()
    assert first is not None
    world.notes.update(shipping=first.shipping)
    world.mlog("2,root.z\n", more=True)
    with TextLog.open(world.dir) as log:
        assert log is not None
        plan = log.plan(None, world.notes, whole=False)
        assert plan is not None
        resumed = log.goes_on(plan, staged(first, 100, SERIES), world.notes)
        assert resumed is not None
        assert (resumed.identity, resumed.end) == (first.identity, len(SERIES) + 9)
        rest = b"".join(piece for _, piece, _ in log.blocks(resumed, 100, 1000))
    assert rest.decode() == SERIES[100:] + "2,root.z\n"


def test_what_was_begun_of_another_log_is_begun_anew(world: World) -> None:
    world.mlog(SERIES)
    first = world.plan()
    assert first is not None
    there = staged(first, 100, SERIES)
    with TextLog.open(world.dir) as log:
        assert log is not None
        assert log.goes_on(first, there, world.notes) is None  # nothing noted
        world.notes.update(shipping=first.shipping)
        notes = world.notes
        assert log.goes_on(first, there, notes) is not None
        other = SERIES.replace("s", "t")
        assert log.goes_on(first, staged(first, 100, other), notes) is None
    world.mlog(other)
    with TextLog.open(world.dir) as log:
        assert log is not None
        assert log.goes_on(first, there, world.notes) is None


def test_tags_that_changed_since_it_was_begun_begin_it_anew(world: World) -> None:
    world.mlog("0,root.a.d1.s1,1,0,0,,,0\n" + SERIES)
    world.tlog({"k": "1"})
    first = world.plan()
    assert first is not None
    world.notes.update(shipping=first.shipping)
    text = (world.dir / "mlog.txt").read_text()
    world.tlog({"k": "2"})
    with TextLog.open(world.dir) as log:
        assert log is not None
        assert log.goes_on(first, staged(first, 100, text), world.notes) is None


def test_a_log_that_is_cut_while_it_is_read_is_left_for_the_next_round(world: World) -> None:
    world.mlog(SERIES)
    with TextLog.open(world.dir) as log:
        assert log is not None
        plan = log.plan(None, world.notes, whole=False)
        assert plan is not None
        world.mlog("2,root.a\n")
        with pytest.raises(ChangedError):
            list(log.blocks(plan, 0, 1000))


def test_a_piece_is_no_longer_than_its_budget_but_for_a_line_and_its_slot(world: World) -> None:
    lines = "".join(f"0,root.a.d1.s{each},1,0,0,,,{each * SLOT}\n" for each in range(100))
    world.mlog(lines)
    world.tlog(*({"k": "v" * (each * 6)} for each in range(100)))
    with TextLog.open(world.dir) as log:
        assert log is not None
        plan = log.plan(None, world.notes, whole=False)
        assert plan is not None
        pieces = list(log.blocks(plan, 0, 2000))
    assert b"".join(piece for _, piece, _ in pieces).decode() == lines
    assert sum(len(slots) for _, _, slots in pieces) == 100
    assert all(
        len(piece) + sum(map(len, slots.values())) < 3000 and piece.endswith(b"\n")
        for _, piece, slots in pieces
    )


def test_a_line_longer_than_any_block_travels_in_pieces(world: World) -> None:
    text = "2,root.a\n" + "x" * 5000 + "\n2,root.b\n"
    world.mlog(text)
    _, data, _ = world.ship()
    assert data.decode() == text


# -- the rest ------------------------------------------------------------------------------------


def test_a_tlog_is_read_again_only_if_it_may_have_changed(world: World) -> None:
    world.mlog("0,root.a.d1.s1,1,0,0,,,0\n")
    world.tlog({"k": "1"})
    world.ship()
    known = world.notes.now.tlogs[TLOG]
    world.notes.update(tlogs={TLOG: type(known)(**{**as_dict(known), "digest": "made up"})})
    plan = world.plan()
    assert plan is not None  # the digest was believed: the file has its time and size of then
    assert plan.reason == "tags were changed in place"


def as_dict(known: object) -> dict[str, object]:
    return {name: getattr(known, name) for name in known.__struct_fields__}  # type: ignore[attr-defined]


def test_unusable_notes_are_as_good_as_none(world: World) -> None:
    world.sync.make_dirs(ENDPOINT)
    for content in (b"", b"{", b'{"version":99}', b"\xff"):
        world.sync.write_atomic(f"{ENDPOINT}/sync_schema_pos", content)
        assert world.notes.now.position is None


@pytest.mark.parametrize("name", [MLOG, TLOG])
def test_what_is_no_file_in_place_of_a_log_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / MLOG).write_text("2,root.a\n")
    (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / name).symlink_to("/etc/hostname")
    with pytest.raises(UnsafePathError, match=name), TextLog.open(tmp_path):
        pass
