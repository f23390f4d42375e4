"""The logs of regions and other forms of a schema, gathered into one text log."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from common import crash
from common.crash import SimulatedCrash
from common.durable import Tree
from common.errors import DamagedError
from common.formats.tlogtext import SLOT, read_slot, write_slot
from common.wire import SchemaPosition
from sender.schema.gathered_log import ChangedError
from sender.schema.notes import SchemaNotes
from sender.schema.tag_files import tags_at
from sender.schema.text_log import TextLog, TextPlan
from tests.support import binary_mlog as made
from tests.support.architecture import ROOT

REAL = ROOT / "tests/data/iotdb-regions"
ENDPOINT = "127.0.0.1_5555"
NOW = 2_000_000_000 * 10**9


class World:
    """A schema directory with regions, and what the receiver has applied of it."""

    def __init__(self, root: Path) -> None:
        self.dir = root / "schema"
        self.sync = Tree(self.dir / "sync", create=True)
        self.kept = self.dir / "sync" / ENDPOINT
        self.position: SchemaPosition | None = None
        self.unread: list[str] = []

    def notes(self, *, keep: bool = True) -> SchemaNotes:
        return SchemaNotes.open(self.sync, ENDPOINT, keep=keep)

    def region(self, name: str, *frames: bytes, tags: list[dict[str, str]] | None = None) -> None:
        """Add frames to the log of a region, and slots to its tags."""
        folder = self.dir / name
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "mlog.bin").open("ab") as file:
            file.writelines(frames)
        with (folder / "tlog.txt").open("ab") as file:
            file.writelines(write_slot(each, {}) for each in tags or [])

    def series(self, name: str, *names: str, **members: object) -> None:
        database = name.partition("/")[0]
        frames = [made.created(f"{database}.d.{each}", **members) for each in names]  # type: ignore[arg-type]
        self.region(name, *map(made.unchecked, frames))

    def ship(self, *, keep: bool = True) -> tuple[TextPlan | None, str, dict[int, bytes]]:
        notes = self.notes(keep=keep)
        with TextLog.open(self.dir, notes, clock_ns=lambda: NOW) as log:
            assert log is not None
            self.unread = log.unread
            plan = log.plan(self.position, notes, whole=False)
            data, slots = b"", {}
            if plan is not None:
                for _, piece, found in log.blocks(plan, 0, 1 << 20):
                    data += piece
                    slots.update(found)
                if keep:
                    mark = log.mark(plan)
                    assert len(mark) < 1024
                    self.position = SchemaPosition(
                        identity=plan.identity, offset=plan.offset, mark=mark
                    )
        return plan, data.decode(), slots


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    opened = World(tmp_path)
    yield opened
    opened.sync.close()


def test_all_regions_are_one_log_and_what_each_gains_goes_on(world: World) -> None:
    world.series("root.a/0", "s")
    world.series("root.b/1", "s")
    _, text, _ = world.ship()
    assert text.splitlines() == [
        "2,root.a", "0,root.a.d.s,3,8,1,,,", "2,root.b", "0,root.b.d.s,3,8,1,,,",
    ]  # fmt: skip
    world.series("root.a/0", "t")
    world.series("root.a/10", "u")
    plan, text, _ = world.ship()
    assert plan is not None
    assert plan.reason is None
    assert text.splitlines() == ["0,root.a.d.t,3,8,1,,,", "2,root.a", "0,root.a.d.u,3,8,1,,,"]
    assert world.ship()[0] is None


def test_a_round_in_which_nothing_changed_reads_no_log(world: World, monkeypatch) -> None:
    world.series("root.a/0", *(f"s{each}" for each in range(300)))
    world.series("root.b/1", "s")
    world.ship()
    opened: list[str] = []
    real = Tree.open_read

    def counted(tree: Tree, rel: str) -> int:
        opened.append(rel)
        return real(tree, rel)

    monkeypatch.setattr(Tree, "open_read", counted)
    assert world.ship()[0] is None
    assert not any(each.endswith("mlog.bin") for each in opened)
    world.series("root.b/1", "t")
    assert world.ship()[1] == "0,root.b.d.t,3,8,1,,,\n"
    assert "root.a/0/mlog.bin" not in opened


def test_the_log_of_a_whole_database_is_read_on_as_well(world: World, monkeypatch) -> None:
    (world.dir / "mlog.bin").write_bytes(made.storage_group("root.a"))
    world.ship()
    with (world.dir / "mlog.bin").open("ab") as file:
        file.write(made.storage_group("root.b"))
        file.write(made.storage_group("root.c")[:9])
    plan, text, _ = world.ship()
    assert plan is not None
    assert (plan.base, text) == (9, "2,root.b\n")
    assert world.ship()[0] is None
    with (world.dir / "mlog.bin").open("r+b") as file:
        file.seek(2 * len(made.storage_group("root.b")))
        file.write(made.storage_group("root.c"))
    assert world.ship()[1] == "2,root.c\n"


@pytest.mark.parametrize("what", ["begun anew", "changed", "copied", "gone"])
def test_a_region_that_is_another_is_told_whole(world: World, what: str) -> None:
    world.series("root.a/0", "s", "t")
    world.series("root.b/1", "s")
    world.ship()
    log = world.dir / "root.b/1/mlog.bin"
    if what == "begun anew":
        log.write_bytes(b"")
        world.series("root.b/1", "u")
    elif what == "changed":
        data = log.read_bytes().replace(b"root.b.d.s", b"root.b.d.u")
        log.write_bytes(data + made.unchecked(made.created("root.b.d.v")))
    elif what == "copied":
        copy = log.with_name("copy")
        copy.write_bytes(log.read_bytes().replace(b"root.b.d.s", b"root.b.d.u"))
        copy.rename(log)
    else:
        shutil.rmtree(world.dir / "root.b")
    plan, text, _ = world.ship()
    assert plan is not None
    assert plan.base == 0
    assert "root.a.d.t" in text
    assert ("root.b.d.u" in text) is (what != "gone")
    assert "root.b.d.s" not in text
    assert world.ship()[0] is None


def test_a_region_that_is_damaged_keeps_no_other_back_and_is_named(world: World) -> None:
    world.series("root.a/0", "s")
    world.region("root.a/0", b"\x7f" * 30)
    world.series("root.a/0", "t")
    world.series("root.b/1", "s")
    _, text, _ = world.ship()
    assert [line for line in text.splitlines() if line.startswith("0,")] == [
        "0,root.a.d.s,3,8,1,,,",
        "0,root.b.d.s,3,8,1,,,",
    ]
    assert any("root.a/0/mlog.bin, byte" in each for each in world.unread)
    assert world.ship()[0] is None
    assert any("root.a/0/mlog.bin, byte" in each for each in world.unread)


def test_each_region_has_tags_of_its_own(world: World) -> None:
    for number, name in enumerate(("root.a/0", "root.b/1")):
        world.region(name, tags=[{"first": name}, {"k": str(number)}])
        world.series(name, "s", offset=SLOT)
    _, text, slots = world.ship()
    found = {offset: read_slot(slot).tags for offset, slot in slots.items()}
    assert found == {tags_at(1) + SLOT: {"k": "0"}, tags_at(2) + SLOT: {"k": "1"}}
    assert all(f",{offset}\n" in text for offset in found)
    world.region("root.a/0", tags=[{"k": "more"}])
    world.region("root.b/1", made.unchecked(made.moved_tags("root.b.d.s", 2 * SLOT)), tags=[{}])
    plan, text, _ = world.ship()
    assert plan is not None
    assert (plan.reason, text) == (None, f"12,root.b.d.s,{tags_at(2) + 2 * SLOT}\n")
    world.region("root.c/2", tags=[{"k": "v"}])
    world.series("root.c/2", "s", offset=0)
    plan, _, slots = world.ship()
    assert plan is not None
    assert plan.reason is None
    assert [read_slot(each).tags for each in slots.values()] == [{"k": "v"}]
    with (world.dir / "root.b/1/tlog.txt").open("r+b") as file:
        file.seek(SLOT)
        file.write(write_slot({"k": "in place"}, {}))
    os.utime(world.dir / "root.b/1/tlog.txt", ns=(NOW, NOW - 10**10))
    plan, _, slots = world.ship()
    assert plan is not None
    assert plan.reason == "tags were changed in place"
    assert {"k": "in place"} in [read_slot(each).tags for each in slots.values()]
    assert world.ship()[0] is None


def test_lost_notes_on_tags_cost_one_more_telling(world: World) -> None:
    for name in ("root.a/0", "root.b/1"):
        world.region(name, tags=[{"k": "v"}])
        world.series(name, "s", offset=0)
    world.ship()
    (world.kept / "sync_schema_pos").unlink()
    assert world.ship()[0] is None
    (world.kept / "sync_schema_pos").unlink()
    world.region("root.a/0", tags=[{"k": "w"}])
    plan, _, _ = world.ship()
    assert plan is not None
    assert plan.base == 0
    assert world.ship()[0] is None


@pytest.mark.parametrize("name", ["schema_lines.txt", "schema_lines.state"])
@pytest.mark.parametrize("how", ["gone", "cut", "nonsense", "zeros"])
def test_what_is_kept_may_be_lost(world: World, name: str, how: str) -> None:
    world.series("root.a/0", *(f"s{each}" for each in range(500)))
    world.ship()
    kept = world.kept / name
    data = kept.read_bytes()
    match how:
        case "gone":
            kept.unlink()
        case "cut":
            kept.write_bytes(data[:-7])
        case "nonsense":
            kept.write_bytes(b"[]" * 30)
        case _:
            kept.write_bytes(data[:-700] + bytes(700))
    assert world.ship()[0] is None  # read again, and the same
    world.series("root.a/0", "t")
    plan, text, _ = world.ship()
    assert plan is not None
    assert (plan.reason, text) == (None, "0,root.a.d.t,3,8,1,,,\n")


@pytest.mark.parametrize("point", ["gathered.lines_written", "gathered.lines_renamed"])
@pytest.mark.parametrize("first", [True, False])
def test_a_death_while_lines_are_kept_tells_none_twice(
    world: World, point: str, first: bool
) -> None:
    world.series("root.a/0", "s")
    if not first:
        world.ship()
        if point == "gathered.lines_renamed":
            (world.kept / "schema_lines.state").unlink()
        world.series("root.a/0", "t")

    def die(here: str) -> None:
        if here == point:
            raise SimulatedCrash(here)

    with crash.arm(die), pytest.raises(SimulatedCrash):
        world.ship()
    world.series("root.a/0", "u")
    _, text, _ = world.ship()
    lines = ["2,root.a", *(f"0,root.a.d.{each},3,8,1,,," for each in "stu")]
    assert text.splitlines() == ([lines[0], lines[1], lines[3]] if first else lines[2:])
    assert world.ship()[0] is None


def test_who_only_looks_keeps_nothing_and_sees_the_same(world: World) -> None:
    world.series("root.a/0", "s")
    first = world.ship(keep=False)[1]
    assert not world.kept.exists()
    assert world.ship()[1] == first
    world.series("root.a/0", "t")
    before = {each: each.read_bytes() for each in world.kept.iterdir()}
    assert world.ship(keep=False)[1] == "0,root.a.d.t,3,8,1,,,\n"
    assert {each: each.read_bytes() for each in world.kept.iterdir()} == before


def test_a_checkpoint_while_it_is_read_is_looked_at_again(world: World, monkeypatch) -> None:
    (world.dir / "mlog.bin").write_bytes(made.storage_group("root.a"))
    real = Tree.open_read

    def checkpoint(tree: Tree, rel: str) -> int:
        if rel == "mlog.bin":
            nodes = made.group_node("a", 0, 0) + made.inner_node("root", 1)
            (world.dir / "mtree-1.snapshot.bin").write_bytes(nodes)
        return real(tree, rel)

    monkeypatch.setattr(Tree, "open_read", checkpoint)
    with pytest.raises(ChangedError):
        world.ship()
    monkeypatch.undo()
    assert world.ship()[1] == "2,root.a\n2,root.a\n"


def test_damage_of_a_whole_databases_log_leaves_what_is_kept(world: World) -> None:
    (world.dir / "mlog.bin").write_bytes(made.storage_group("root.a"))
    world.ship()
    with (world.dir / "mlog.bin").open("ab") as file:
        file.write(b"\x01" * 40 + made.storage_group("root.b"))
    with pytest.raises(DamagedError, match=r"mlog\.bin, byte"):
        world.ship()
    (world.dir / "mlog.bin").write_bytes(made.storage_group("root.a"))
    assert world.ship()[0] is None


def test_what_is_not_read_is_said(world: World) -> None:
    (world.dir / "root.a/0").mkdir(parents=True)
    (world.dir / "root.a/0/tlog.txt").touch()
    world.series("root.b/1", "s")
    (world.dir / "root.b/1/pbtree.pst").touch()
    for _ in range(3):
        world.region("tables/2", made.region_frame(b"\x64rest"))
    _, text, _ = world.ship()
    assert "2,tables" not in text
    said = "\n".join(world.unread)
    for each in ("1 regions keep no mlog.bin", "pages", "ConfigNode", "tables: 3 records"):
        assert each in said
    assert world.ship()[0] is None
    assert "\n".join(world.unread) == said


def test_real_logs_of_1_0(world: World) -> None:
    shutil.copytree(REAL / "1.0.1", world.dir, dirs_exist_ok=True)
    _, text, slots = world.ship()
    assert text.splitlines() == [
        "2,root.plant",
        "2,root.farm",
        "10,root.farm,86400000",
        "2,root.plant",
        "0,root.plant.d0.s1,3,8,1,,,",
        f"0,root.plant.d0.s2,2,4,7,,temperature,{tags_at(1)}",
        "0,root.plant.d0.s3,5,0,2,,,",
        f"0,root.plant.d1.s1,0,2,1,,,{tags_at(1) + 700}",
        "#aligned,root.plant.a1",
        "0,root.plant.a1.x,3,2,1,,,",
        "0,root.plant.a1.y,1,0,7,,,",
        "0,root.plant.gone.s1,3,8,1,,,",
        f"12,root.plant.d0.s1,{tags_at(1) + 1400}",
        "13,root.plant.d0.s3,words",
        f"12,root.plant.d0.s3,{tags_at(1) + 2100}",
        "0,root.plant.d0.s9,4,8,1,,,",
        "0,root.plant.`a.b`.`c,d`,4,8,1,,,",
        "2,root.farm",
        "0,root.farm.d1.s1,3,8,1,,,",
        "0,root.farm.d1.s2,5,0,1,,,",
        "#aligned,root.farm.al",
        "0,root.farm.al.x,3,8,1,,,",
        "#aligned,root.farm.al",
        "0,root.farm.al.y,3,8,1,,,",
    ]
    found = read_slot(slots[tags_at(1)])
    assert (found.tags, found.attributes) == ({"unit": "f", "place": "hall"}, {"maker": "acme"})
    assert world.unread == []


def test_real_logs_of_2_0(world: World) -> None:
    shutil.copytree(REAL / "2.0.1-beta", world.dir, dirs_exist_ok=True)
    _, text, slots = world.ship()
    lines = text.splitlines()
    assert f"0,root.plant.d0.s2,2,4,7,,temperature,{tags_at(1)}" in lines
    assert "1,root.plant.gone.s1" in lines
    assert "1,root.plant.d1.s1" in lines
    assert lines[-3:] == [
        "#aligned,root.farm.al",
        "0,root.farm.al.x,4,8,7,,,",
        "0,root.farm.al.y,4,8,7,,,",
    ]
    long = read_slot(slots[tags_at(1) + 2800])  # in two slots, which are chained
    assert long.tags == {"a": "x" * 400, "b": "y" * 400}
    assert [each.partition(":")[0] for each in world.unread] == [
        "TTLs, templates and the tables of databases are kept by the ConfigNode",
        "schema templates",
    ]


def test_lines_are_flushed_before_they_are_noted(world: World) -> None:
    world.series("root.a/0", "s")
    world.ship()
    world.series("root.a/0", "t")
    steps: list[str] = []
    with crash.arm(steps.append):
        world.ship()
    noted = steps.index("gathered.noted")
    assert "durable.sync_file.after" in steps[: steps.index("gathered.lines_written")]
    assert "durable.write_atomic.renamed" in steps[steps.index("gathered.lines_written") : noted]


def test_a_link_in_place_of_a_regions_log_is_not_followed_and_keeps_no_other_back(
    world: World, tmp_path: Path
) -> None:
    world.series("root.a/0", "s")
    world.series("root.b/1", "s")
    log = world.dir / "root.b/1/mlog.bin"
    log.rename(tmp_path / "elsewhere")
    log.symlink_to(tmp_path / "elsewhere")
    _, text, _ = world.ship()
    assert "root.a.d.s" in text
    assert "root.b" not in text
    assert any("links are not followed" in each for each in world.unread)
