"""Who a storage node is, on its own disk, and which master it obeys."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from common import crash
from common.durable import Tree
from common.errors import (
    ConfigError,
    ConflictError,
    DamagedError,
    LockedError,
    NoSpaceError,
)
from receiver.heartbeats.node_wire import MOST_BEFORE, MasterMark
from receiver.metadata.engine import Engine
from receiver.storagenode.node_home import (
    ForeignMasterError,
    NodeHome,
    ReplacedMasterError,
)

ENGINE, OTHER = "e" * 32, "f" * 32


def opened(path: Path, now: list[float] | None = None) -> NodeHome:
    return NodeHome.open(path, monotonic=lambda: now[0] if now else 0.0)


def mark(commit: int = 100, incarnation: int = 2, ident: str = "two", engine: str = ENGINE):
    return MasterMark(engine=engine, incarnation=incarnation, ident=ident, commit=commit)


def test_each_start_has_a_higher_number_and_another_id_and_the_uuid_stays(tmp_path: Path):
    starts = []
    for _ in range(3):
        with opened(tmp_path) as home:
            starts.append(home.start)
            assert home.before == tuple(each.boot for each in starts[:-1])
    assert [each.instance for each in starts] == [1, 2, 3]
    assert len({each.uuid for each in starts}) == 1
    assert len({each.boot for each in starts}) == 3


def test_the_number_is_on_the_disk_before_anybody_hears_it(tmp_path: Path):
    with opened(tmp_path) as home:
        first = home.start

    def die(name: str) -> None:
        if name == "storagenode.started":
            raise crash.SimulatedCrash

    with crash.arm(die), pytest.raises(crash.SimulatedCrash):
        opened(tmp_path)
    with opened(tmp_path) as home:
        assert home.start.instance == first.instance + 2


def test_of_the_starts_before_the_last_are_remembered(tmp_path: Path):
    boots = []
    for _ in range(MOST_BEFORE + 5):
        with opened(tmp_path) as home:
            boots.append(home.start.boot)
    with opened(tmp_path) as home:
        assert home.before == tuple(boots[-MOST_BEFORE:])


def test_a_directory_that_holds_something_else_is_refused(tmp_path: Path):
    Engine.open(tmp_path / "engine").close()
    with pytest.raises(ConfigError, match="was not made by serve --node"):
        opened(tmp_path / "engine")
    opened(tmp_path / "node").close()
    with pytest.raises(ConfigError, match="belongs to a storage node"):
        Engine.open(tmp_path / "node")


def test_two_processes_are_not_one_node(tmp_path: Path):
    with opened(tmp_path) as home, pytest.raises(LockedError):
        opened(tmp_path)
    with opened(tmp_path) as again:
        assert again.start.instance == home.start.instance + 1


def test_a_damaged_file_is_no_new_node(tmp_path: Path):
    opened(tmp_path).close()
    (tmp_path / "storage-node.json").write_text("{")
    with pytest.raises(DamagedError, match="restore it from a copy"):
        opened(tmp_path)


def test_a_master_of_another_engine_is_refused(tmp_path: Path):
    with opened(tmp_path) as home:
        home.hear(mark())
        with pytest.raises(ForeignMasterError, match=f"of the engine {ENGINE}"):
            home.hear(mark(engine=OTHER))
    with opened(tmp_path) as home, pytest.raises(ForeignMasterError):
        home.hear(mark(engine=OTHER))


def test_a_master_of_a_lower_incarnation_is_refused(tmp_path: Path):
    with opened(tmp_path) as home:
        home.hear(mark())
        home.hear(mark(incarnation=3, ident="three"))
    with opened(tmp_path) as home:
        with pytest.raises(ReplacedMasterError, match="3 has taken its place"):
            home.hear(mark(commit=999))
        with pytest.raises(ReplacedMasterError, match="two masters are incarnation 3"):
            home.hear(mark(incarnation=3, ident="another"))
        assert home.seen == mark(incarnation=3, ident="three")


def test_a_master_that_was_turned_back_is_doubted_until_an_operator_confirms_it(tmp_path: Path):
    with opened(tmp_path) as home:
        home.hear(mark(commit=100))
        with pytest.raises(ConflictError, match="is not doubted"):
            home.confirm()
        home.hear(mark(commit=90))
        assert "newest commit is 90, and 100 was seen" in home.doubt
        home.hear(mark(commit=95))
        assert home.doubt
        home.confirm()
        assert (home.doubt, home.seen) == ("", mark(commit=95))
    with opened(tmp_path) as home:
        home.hear(mark(commit=96))
        assert home.doubt == ""


def test_a_master_that_is_confirmed_is_not_doubted_by_the_files_of_the_one_before(tmp_path: Path):
    """It may not have committed anything since: what it lacks came behind its newest commit."""
    with opened(tmp_path) as home:
        home.hear(mark(commit=100))
        home.hear(mark(commit=90))
        home.confirm()
        home.has_files_of(100)
        home.hear(mark(commit=90))
        assert (home.doubt, home.seen) == ("", mark(commit=90))
    with opened(tmp_path) as home:
        home.has_files_of(100)
        home.hear(mark(commit=90))
        assert home.doubt == ""
        home.has_files_of(101)
        home.hear(mark(commit=95))
        assert home.doubt


def test_what_came_in_the_last_minute_before_a_power_cut_was_seen_by_the_files_that_it_brought(
    tmp_path: Path,
):
    home = opened(tmp_path)
    home.hear(mark(commit=100))
    home.hear(mark(commit=150))  # which is not noted yet
    home._resources.close()  # the power is cut
    with opened(tmp_path) as home:
        assert home.seen == mark(commit=100)
        home.has_files_of(140)
        home.has_files_of(120)
        assert home.seen == mark(commit=140)
        home.hear(mark(commit=130))
        assert home.doubt
    with opened(tmp_path) as home:
        home.hear(mark(commit=130))
        assert home.doubt  # it is noted at the end


def test_a_restored_master_is_doubted_and_the_one_that_it_replaces_is_refused(tmp_path: Path):
    restored = mark(commit=90, incarnation=3, ident="three")
    with opened(tmp_path) as home:
        home.hear(mark(commit=100))
        home.hear(restored)
        assert home.doubt
        with pytest.raises(ReplacedMasterError, match="3 has taken its place"):
            home.hear(mark(commit=101))
        assert home.doubt
    with opened(tmp_path) as home:
        with pytest.raises(ReplacedMasterError):
            home.hear(mark(commit=101))
        home.hear(restored)
        assert "newest commit is 90, and 100 was seen" in home.doubt
        home.confirm()
        home.hear(mark(commit=91, incarnation=3, ident="three"))
        assert home.doubt == ""


def test_a_master_that_has_come_to_what_was_seen_is_not_doubted_any_more(tmp_path: Path):
    with opened(tmp_path) as home:
        home.hear(mark(commit=100))
        home.hear(mark(commit=90))
        home.hear(mark(commit=100))
        assert home.doubt == ""


def test_a_master_that_has_passed_what_was_seen_without_coming_to_it_is_doubted_still(
    tmp_path: Path,
):
    """Its history may be too short for it to know that it never had that commit."""
    with opened(tmp_path) as home:
        home.hear(mark(commit=100))
        home.hear(mark(commit=90))
        home.hear(mark(commit=110))
        assert "100 was seen of it, which it never had" in home.doubt
    with opened(tmp_path) as home:
        home.hear(mark(commit=120))
        assert home.doubt
        home.confirm()
        home.hear(mark(commit=130))
        assert home.doubt == ""


def test_what_a_doubted_master_brings_does_not_end_the_doubt(tmp_path: Path):
    with opened(tmp_path) as home:
        home.hear(mark(100))
        home.hear(mark(90))
        assert home.doubt
        home.has_files_of(150)  # pulled from it: its newest commit brought that
        assert home.seen is not None
        assert home.seen.commit == 100  # what is asked of a master, which lacks that one
        home.hear(mark(150))
        assert "which it never had" in home.doubt
    with opened(tmp_path) as home:
        home.has_files_of(150)
        home.hear(mark(150))
        assert "which it never had" in home.doubt
        home.confirm()
        assert not home.doubt


def test_a_restart_does_not_end_the_doubt_of_a_master_that_has_brought_files(tmp_path: Path):
    with opened(tmp_path) as home:
        home.hear(mark(100))
        home.hear(mark(90))
    with opened(tmp_path) as home:  # before the master was heard again
        home.has_files_of(150)
        home.hear(mark(150))
        assert "which it never had" in home.doubt
        home.confirm()
    with opened(tmp_path) as home:
        home.hear(mark(151))
        assert not home.doubt


def test_a_doubt_that_ended_is_none_behind_a_restart(tmp_path: Path):
    with opened(tmp_path) as home:
        home.hear(mark(100))
        home.hear(mark(90))
        home.hear(mark(100))
        assert not home.doubt
    with opened(tmp_path) as home:
        home.hear(mark(150))
        assert not home.doubt


def test_files_of_the_master_before_that_came_last_do_not_bring_the_doubt_again(tmp_path: Path):
    with opened(tmp_path) as home:
        home.hear(mark(100))
        home.hear(mark(90))
        home.has_files_of(120)  # by a list of the one before, that was read meanwhile
        home.confirm()
        home.has_files_of(120)
        home.hear(mark(90))
        assert not home.doubt


def test_what_was_seen_is_noted_now_and_then_and_at_the_end(tmp_path: Path):
    now = [0.0]
    home = opened(tmp_path, now)
    home.hear(mark(commit=100))
    home.hear(mark(commit=101))
    path = tmp_path / "storage-node.json"
    assert b'"commit":100' in path.read_bytes()
    now[0] = 61.0
    home.hear(mark(commit=102))
    assert b'"commit":102' in path.read_bytes()
    home.hear(mark(commit=103))
    home.close()
    assert b'"commit":103' in path.read_bytes()


STEPS = ("written", "renamed", "after")


@pytest.mark.parametrize("step", STEPS)
def test_a_start_that_dies_at_any_step_never_has_its_number_said_twice(tmp_path: Path, step: str):
    with opened(tmp_path) as home:
        said = {home.start.instance}

    def die(name: str) -> None:
        if name == f"durable.write_atomic.{step}":
            raise crash.SimulatedCrash

    for _ in range(2):
        with crash.arm(die), pytest.raises(crash.SimulatedCrash):
            opened(tmp_path)
        with opened(tmp_path) as home:
            assert home.start.instance > max(said)
            assert len({*home.before, home.start.boot}) == len(home.before) + 1
            said.add(home.start.instance)


def test_a_full_disk_keeps_no_answer_from_counting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    now = [0.0]
    home = opened(tmp_path, now)
    home.hear(mark(commit=100))

    def full(*_: object, **__: object) -> None:
        raise NoSpaceError("no space")

    with monkeypatch.context() as patch:
        patch.setattr(Tree, "write_atomic", full)
        now[0] = 61.0
        home.hear(mark(commit=101))
        assert home.seen == mark(commit=101)
        with pytest.raises(NoSpaceError):
            home.hear(mark(commit=102, incarnation=3, ident="three"))
        assert home.seen == mark(commit=101), "another life is obeyed once it is noted"
        home.close()
    with opened(tmp_path) as home:
        assert home.seen == mark(commit=100)


def test_a_master_that_cannot_name_its_life_moves_nothing_of_what_was_seen(tmp_path: Path):
    """Nobody could say later in which life that commit was."""
    home = opened(tmp_path)
    home.hear(msgspec.structs.replace(mark(commit=5), life="one"))
    home.hear(mark(commit=9))
    assert home.doubt == ""
    assert home.seen == msgspec.structs.replace(mark(commit=5), life="one")
    home.hear(msgspec.structs.replace(mark(commit=9), life="two"))
    assert home.seen == msgspec.structs.replace(mark(commit=9), life="two")


def test_a_doubted_master_takes_the_place_of_nothing_that_was_seen(tmp_path: Path):
    home = opened(tmp_path)
    seen = msgspec.structs.replace(mark(commit=5), life="one")
    home.hear(seen)
    home.hear(msgspec.structs.replace(mark(commit=9), life="two"), lacks=5)
    assert home.doubt
    assert home.seen == seen
    home.close()
    home = opened(tmp_path)
    assert home.seen == seen
    home.hear(msgspec.structs.replace(mark(commit=9), life="two"))
    assert home.doubt
    home.confirm()
    assert home.seen == msgspec.structs.replace(mark(commit=9), life="two")
