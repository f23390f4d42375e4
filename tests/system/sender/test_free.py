"""Freeing space at the edge: what goes, what stays, and that nothing is lost by it."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import struct

import pytest

from common import crash
from common.crash import SimulatedCrash
from common.durable import Tree
from common.errors import LockedError, TsferryError, UsageError
from sender.config import ReceiverEntry
from sender.kept.freed import FreedList
from sender.round.freed_files.freeing import Freeing, FreeOptions, FreeReport
from sender.round.freed_files.removing import Removal
from sender.round.round import Round
from sender.send.remote import Remote
from tests.support import tiers
from tests.support.json_schema import check_output
from tests.support.tsfile_bytes import build, vstr
from tests.support.tsfile_bytes import resource as tsfile_resource
from tests.system.sender.test_rounds import call, in_sync

MODS = "DELETION,{}.d1.s1,9223372036854775807,0,0\n"


def freed_lines(edge) -> dict[str, str]:
    """path -> MD5 of what the list of freed files has."""
    with Tree(edge.schema / "sync") as sync:
        (folder,) = (name for name, _ in sync.listing() if "_" in name)
        return {each.path: each.md5 for each in FreedList(sync, folder)}


def kept(report) -> dict[str, str]:
    return {path.text: why for path, why in report.kept.items()}


def retired(centre, edge) -> list[str]:
    found = centre.call("retired", "list", "--sender", edge.uuid)["files"]
    return sorted(each["path"] for each in found)


def names(report) -> list[str]:
    return [file.path.text for file in report.freed]


def leftovers(edge) -> list[str]:
    """What belongs to no TsFile any more."""
    return [
        str(each.relative_to(edge.data))
        for kind in ("sequence", "unsequence")
        for each in edge.data.glob(f"{kind}/**/*.tsfile.*")
        if not each.with_name(each.name.partition(".tsfile")[0] + ".tsfile").exists()
    ]


def late(edge, number: int, at: int, points: int = 5) -> str:
    """A late file with the first times of the file in order with the number `at`; 10 are all."""
    return edge.write(number, first=at * 1000, points=points, kind="unsequence")


# -- the command -----------------------------------------------------------------------------------


def test_free_removes_what_the_receiver_holds_with_what_belongs_to_it(centre, make_edge):
    edge = make_edge(centre.start())
    first, second = edge.write(1), edge.write(2)
    above = late(edge, 3, 2)
    (edge.data / f"{first}.mods").write_bytes(MODS.format(edge.sg).encode())
    edge.round()
    new = edge.write(4)
    config = edge.write_config()
    contents = edge.files
    shown = call(config, "free", "--dry-run")
    assert shown.stdout.splitlines() == [str(edge.data / each) for each in (first, second, above)]
    assert edge.files == contents
    done = call(config, "free")
    assert (done.returncode, done.stdout) == (0, shown.stdout)
    assert f"stays: {new}: dc1: not loaded there as it is here" in done.stderr
    assert list(edge.files) == [new]
    assert leftovers(edge) == []
    assert freed_lines(edge) == {each: contents[each] for each in (first, second, above)}
    assert not list(edge.schema.glob("sync/free.begun"))

    report = edge.round()
    assert (report.exit_code, report.sent, report.retired) == (0, 1, 3)
    assert retired(centre, edge) == sorted([first, second, above])
    done = check_output("tsferry-sender free", call(config, "free", "--json").stdout)
    assert (done["files"], done["freed"][0]["file"], done["kept"]) == (1, new, [])


def test_free_lists_what_it_would_remove_first(centre, make_edge):
    edge = make_edge(centre.start())
    first = edge.write(1)
    above = late(edge, 3, 1)
    edge.round()
    config = edge.write_config()
    listed = call(config, "status", "--safe-to-delete")
    assert listed.stdout.splitlines() == [str(edge.data / first)]
    edge.remove(first)
    listed = call(config, "status", "--safe-to-delete")
    assert listed.stdout.splitlines() == [str(edge.data / above)]


def test_without_its_receiver_nothing_is_freed(centre, make_edge):
    edge = make_edge(centre.start())
    edge.write(1)
    edge.round()
    centre.stop()
    done = call(edge.write_config(), "free", "--json")
    assert done.returncode == 4
    assert json.loads(done.stdout)["error"]["type"] == "unreachable"
    assert len(edge.files) == 1


def test_a_mirror_frees_nothing(shared, make_edge):
    edge = make_edge(shared.url)
    path = edge.write(1)
    edge.round()
    edge.with_settings(propagate_deletes="all")
    assert "propagate_deletes = all" in kept(edge.free())[path]
    edge.write(2)
    edge.round()
    edge.with_settings(propagate_deletes="replaced")  # the receiver has not heard of it yet
    assert "propagate_deletes = all" in kept(edge.free())[path]
    edge.write(3)
    edge.round()
    assert len(edge.free().freed) == 3


def test_every_receiver_must_hold_a_file_and_each_has_it_on_its_list(shared, centre, make_edge):
    edge = make_edge(shared.url)
    (first,) = edge.config.receivers
    second = ReceiverEntry(name="dc2", url=centre.start())
    path = edge.write(1)
    edge.round()
    edge.with_settings(receivers=(first, second))
    remotes = [Remote.make(edge.config, each, edge.uuid, edge.stop) for each in (first, second)]

    def free() -> FreeReport:
        return Freeing(remotes, FreeOptions(), stop=edge.stop).run()

    assert "dc2: not loaded there" in kept(free())[path]
    for each in remotes:
        assert Round(each).run().error is None
    assert names(free()) == [path]
    with Tree(edge.schema / "sync") as sync:
        lists = [[line.path for line in FreedList(sync, each.directory)] for each in remotes]
    assert lists == [[path], [path]]
    for each in remotes:
        each.close()


def test_a_flat_directory_is_freed_too(shared, make_edge):
    edge = make_edge(shared.url, layout="flat", closed_by="tail", quiet_seconds=0.0)
    edge.with_settings(storage_group=edge.sg)
    for number, name in enumerate(("a.tsfile", "b.tsfile")):
        edge.put(name, build({f"{edge.sg}.d1": {"s1": [(number, number)]}}), resource=None)
    assert edge.round().sent == 2
    edge.put("c.tsfile", build({f"{edge.sg}.d1": {"s1": [(9, 9)]}}), resource=None)
    assert [file.rel for file in edge.free().freed] == ["a.tsfile", "b.tsfile"]
    assert [each.name for each in edge.data.glob("*.tsfile")] == ["c.tsfile"]


def test_only_one_process_frees(shared, make_edge):
    edge = make_edge(shared.url)
    edge.write(1)
    edge.round()
    with Tree(edge.schema / "sync") as sync:
        lock = sync.lock("free.lock")
        with pytest.raises(LockedError):
            edge.free()
        assert names(edge.free(dry_run=True)) == [edge.path(1)]
        lock.release()
    assert names(edge.free()) == [edge.path(1)]


def test_of_another_engine_than_that_of_the_list_nothing_is_believed(shared, make_edge):
    edge = make_edge(shared.url)
    edge.write(1)
    edge.round()
    memory = next(edge.schema.glob("sync/*/receiver.json"))
    known = json.loads(memory.read_text())
    memory.write_text(json.dumps(known | {"engine": "0" * 32}))
    with pytest.raises(UsageError, match="another engine"):
        edge.free()
    assert len(edge.files) == 1


# -- what is asked for -----------------------------------------------------------------------------


def test_only_what_matches_goes(shared, make_edge):
    edge = make_edge(shared.url)
    paths = [edge.write(number) for number in range(3)]
    edge.round()
    assert names(edge.free(patterns=("sequence/*/0/0/*-1-0-0.tsfile",))) == [paths[1]]
    assert names(edge.free(patterns=("unsequence/*", "*/nothing"))) == []
    assert names(edge.free(patterns=("unsequence/*", f"{paths[2]}"))) == [paths[2]]


def test_what_is_young_stays(shared, make_edge):
    edge = make_edge(shared.url)
    old, young = edge.write(1), edge.write(2)
    os.utime(edge.data / old, (1_000_000_000, 1_000_000_000))
    edge.round()
    assert names(edge.free(older_than=86_400.0)) == [old]
    assert list(edge.files) == [young]


def test_data_of_the_time_that_is_kept_stays(shared, make_edge):
    edge = make_edge(shared.url)
    path = edge.write(1)  # data of 1970
    new = edge.path(2)
    far = {f"{edge.sg}.d1": {"s1": [(4_000_000_000_000, 1)]}}
    edge.put(new, build(far))
    edge.round()
    assert names(edge.free(keep=30 * 86_400.0)) == [path]
    assert list(edge.files) == [new]


def test_no_more_goes_than_the_space_that_is_wanted(shared, make_edge, monkeypatch):
    edge = make_edge(shared.url)
    paths = [edge.write(number) for number in range(4)]
    edge.round()
    monkeypatch.setattr(
        "sender.round.freed_files.freeing.free_bytes", lambda path: 10 * (4 - len(edge.files))
    )
    report = edge.free(until_free=20)
    assert names(report) == paths[:2]
    assert kept(report) == dict.fromkeys(paths[2:], "enough is free without it")
    assert names(edge.free(until_free=20)) == []


# -- a database that goes on meanwhile -------------------------------------------------------------


def before_removal(monkeypatch, number: int, happens) -> None:
    """Something happens between the judgement and the removal of a file."""
    original, left = Removal.names, iter(range(1_000_000))

    def names(self, directories):
        if next(left) == number:
            happens()
        return original(self, directories)

    monkeypatch.setattr(Removal, "names", names)


def test_a_file_that_is_written_anew_under_its_name_stays(shared, make_edge, monkeypatch):
    edge = make_edge(shared.url)
    first, second = edge.write(1), edge.write(2)
    edge.round()
    before_removal(monkeypatch, 1, lambda: edge.write(1, points=20))
    report = edge.free()
    assert names(report) == [second]
    assert "not loaded there as it is here" in kept(report)[first]


def test_a_deletion_that_comes_meanwhile_holds_its_file(shared, make_edge, monkeypatch):
    edge = make_edge(shared.url)
    first, second = edge.write(1), edge.write(2)
    (edge.data / f"{second}.mods").write_bytes(MODS.format(edge.sg).encode())
    edge.round()

    def deleted() -> None:
        for path in (first, second):
            with (edge.data / f"{path}.mods").open("ab") as out:
                out.write(MODS.format(edge.sg).encode())

    before_removal(monkeypatch, 1, deleted)
    report = edge.free()
    assert names(report) == []
    assert all("is not told there as it is now" in why for why in kept(report).values())
    edge.round()
    assert names(edge.free()) == [first, second]


def grows(edge, path: str, content: bytes) -> None:
    with (edge.data / path).open("ab") as out:
        out.write(content)


def test_a_deletion_that_grows_meanwhile_holds_its_file(shared, make_edge, monkeypatch):
    edge = make_edge(shared.url)
    path = edge.write(1)
    record = MODS.format(edge.sg).encode()
    grows(edge, f"{path}.mods", record)
    edge.round()
    before_removal(monkeypatch, 1, lambda: grows(edge, f"{path}.mods", record))
    assert names(edge.free()) == []
    assert (edge.data / f"{path}.mods").read_bytes() == 2 * record


def test_a_file_that_grows_meanwhile_stays(shared, make_edge, monkeypatch):
    edge = make_edge(shared.url)
    path = edge.write(1)
    edge.round()
    before_removal(monkeypatch, 1, lambda: grows(edge, path, b"x"))
    assert names(edge.free()) == []
    assert path in edge.files


def test_a_resource_that_was_written_anew_is_committed_before_its_file_goes(shared, make_edge):
    edge = make_edge(shared.url)
    paths = [edge.write(number) for number in range(3)]
    edge.round()
    for number, path in enumerate(paths[:2]):
        (edge.data / f"{path}.resource").write_bytes(b"written anew: %d" % number)
    report = edge.free()
    assert names(report) == [paths[2]]
    assert "its .resource is not committed there" in kept(report)[paths[0]]
    report = edge.round()
    assert (report.exit_code, report.resources, report.bytes, report.already) == (0, 2, 30, 0)
    assert edge.round().quiet
    assert edge.leftovers == []
    assert names(edge.free()) == paths[:2]


def test_a_shared_deletion_file_goes_with_the_last_file_that_may_need_it(
    shared, make_edge, monkeypatch
):
    edge = make_edge(shared.url)
    paths = [edge.write(number) for number in (1, 2, 3)]
    at = (edge.data / paths[0]).parent / "0-1.mods2"

    def record(time: int) -> bytes:
        return b"\x01" + struct.pack(">qq", time, time) + vstr(f"{edge.sg}.d1.s1")

    at.write_bytes(record(9) + record(1001))
    for path, begin in zip(paths[:2], (0, len(record(9))), strict=True):
        ranges = {f"{edge.sg}.d1": (1000, 2009)}
        content = tsfile_resource(ranges, at.name, begin)
        (edge.data / f"{path}.resource").write_bytes(content)
    (edge.data / f"{paths[1]}.mods2").write_bytes(record(2001))
    (edge.data / f"{paths[2]}.resource").write_bytes(tsfile_resource({}, None))
    edge.round()
    with at.open("ab") as out:
        out.write(record(1002))
    assert names(edge.free()) == [paths[2]]  # the record is not told yet
    edge.round()
    with at.open("ab") as out:
        out.write(record(1003)[:5])
    assert names(edge.free()) == []  # nor may it be, in the midst of it
    with at.open("ab") as out:
        out.write(record(1003)[5:])
    edge.round()
    assert names(edge.free(patterns=(paths[0],))) == [paths[0]]
    assert at.exists()
    with monkeypatch.context() as patch:
        before_removal(patch, 1, lambda: grows(edge, str(at), record(2002)))
        assert names(edge.free()) == []
    edge.round()
    assert names(edge.free()) == [paths[1]]
    assert (edge.files, leftovers(edge), at.exists()) == ({}, [], False)


def test_a_compaction_that_begins_meanwhile_holds_its_partition(shared, make_edge, monkeypatch):
    edge = make_edge(shared.url)
    paths = [edge.write(number) for number in range(3)]
    edge.round()
    going = edge.data / f"{edge.path(0, level=1)}".replace(".tsfile", ".inner")
    before_removal(monkeypatch, 2, going.touch)
    report = edge.free()
    assert names(report) == paths[:1]
    assert "a compaction is under way" in kept(report)[paths[1]]


def test_a_product_that_appears_meanwhile_holds_the_late_file(shared, make_edge, monkeypatch):
    edge = make_edge(shared.url)
    above = late(edge, 3, 1)
    edge.round()
    before_removal(monkeypatch, 1, lambda: edge.write(1, level=1))
    report = edge.free()
    assert names(report) == []
    assert "which stands" in kept(report)[above]


def test_an_open_file_holds_the_late_files_of_its_partition(shared, make_edge):
    edge = make_edge(shared.url)
    first, above = edge.write(1), late(edge, 3, 9)
    edge.round()
    edge.put(edge.path(5), b"TsFile\x04", resource=None)
    report = edge.free()
    assert names(report) == [first]
    assert "has no .resource" in kept(report)[above]


def test_a_partition_that_never_rests_is_left(shared, make_edge, monkeypatch):
    edge = make_edge(shared.url)
    path = edge.write(1)
    edge.round()
    original = Removal.names
    count = iter(range(1_000_000))

    def names_of(self, directories):
        (edge.data / path).with_name(f"{next(count)}.log").touch()
        return original(self, directories)

    monkeypatch.setattr(Removal, "names", names_of)
    report = edge.free()
    assert (names(report), kept(report)) == ([], {path: "its partition changes all the time"})


def test_the_receivers_word_is_asked_for_again_when_it_is_old(shared, make_edge, monkeypatch):
    edge = make_edge(shared.url)
    paths = [edge.write(number) for number in range(3)]
    edge.round()
    monkeypatch.setattr("sender.round.freed_files.freeing._FRESH", -1.0)
    report = edge.free()
    assert names(report) == []
    monkeypatch.setattr("sender.round.freed_files.freeing._FRESH", 30.0)
    monkeypatch.setattr("sender.round.freed_files.freeing._MOST", 1)
    assert names(edge.free()) == paths


def test_a_link_in_the_way_of_a_file_is_not_followed(shared, make_edge, tmp_path):
    edge = make_edge(shared.url)
    edge.write(1)
    edge.round()
    where = edge.data / "sequence" / edge.sg
    where.rename(tmp_path / "elsewhere")
    where.symlink_to(tmp_path / "elsewhere")
    assert names(edge.free()) == []
    assert (tmp_path / "elsewhere" / "0" / "0").exists()


# -- a death ---------------------------------------------------------------------------------------

POINTS = [
    "freed.added",
    "removing.noted",
    "removing.begun",
    "removing.unlinked",
    "removing.flushed",
    "removing.cleared",
    "removing.done",
]


def die_at(name: str, passage: int):
    left = iter(range(1_000_000))

    def hook(here: str) -> None:
        if here == name and next(left) == passage:
            raise SimulatedCrash(here)

    return hook


def test_the_list_of_points_is_the_whole_list(shared, make_edge):
    edge = make_edge(shared.url)
    edge.write(1)
    edge.round()
    seen: list[str] = []
    with crash.arm(seen.append):
        edge.free()
    assert {each for each in seen if each.startswith(("removing.", "freed."))} == set(POINTS)


@pytest.mark.parametrize(
    ("point", "passage"),
    tiers.sample(itertools.product(POINTS, range(3)), 1, kind=lambda each: each[0]),
)
def test_a_death_at_any_step_of_free_loses_nothing(shared, make_edge, point, passage):
    edge = make_edge(shared.url)
    for number in (1, 2):
        edge.write(number)
    above = late(edge, 3, 2)
    (edge.data / f"{edge.path(2)}.mods").write_bytes(MODS.format(edge.sg).encode())
    edge.round()
    contents = edge.files
    with contextlib.suppress(SimulatedCrash), crash.arm(die_at(point, passage)):
        edge.free()
    gone = contents.keys() - edge.files.keys()
    assert freed_lines(edge).items() >= {path: contents[path] for path in gone}.items()
    if edge.path(2) in edge.files:
        assert above in edge.files
        assert (edge.data / f"{edge.path(2)}.mods").exists()
    assert shared.loaded(edge.uuid) == contents
    report = edge.round()
    assert (report.exit_code, report.retired, report.sent) == (0, len(gone), 0)

    edge.free()
    assert (edge.files, leftovers(edge)) == ({}, [])
    edge.round()
    assert freed_lines(edge) == contents
    assert retired(shared, edge) == sorted(contents)


@pytest.mark.parametrize("point", ["removing.begun", "removing.unlinked:2", "removing.cleared:2"])
def test_a_command_that_is_killed_is_gone_on_with(shared, make_edge, monkeypatch, point):
    edge = make_edge(shared.url)
    for number in range(3):
        edge.write(number)
    edge.round()
    config, contents = edge.write_config(), edge.files
    monkeypatch.setenv("TSFERRY_CRASH_AT", point)
    assert call(config, "free").returncode == -signal.SIGKILL
    monkeypatch.delenv("TSFERRY_CRASH_AT")
    done = call(config, "free")
    assert done.returncode == 0, done.stderr
    assert (edge.files, leftovers(edge), freed_lines(edge)) == ({}, [], contents)


def test_what_a_dead_run_left_of_a_file_that_came_back_stays(shared, make_edge):
    edge = make_edge(shared.url)
    path = edge.write(1)
    edge.round()
    with contextlib.suppress(SimulatedCrash), crash.arm(die_at("removing.unlinked", 0)):
        edge.free()
    edge.put(path, build({f"{edge.sg}.d1": {"s1": [(1, 1)]}}), resource=None)
    assert names(edge.free()) == []
    assert (edge.data / f"{path}.resource").exists()


def test_each_step_is_on_the_disk_before_the_next(shared, make_edge, monkeypatch):
    edge = make_edge(shared.url)
    for number in (1, 2):
        path = edge.write(number)
        (edge.data / f"{path}.mods").write_bytes(MODS.format(edge.sg).encode())
    edge.round()
    steps: list[tuple[str, str]] = []

    def noting(name: str) -> None:
        original = getattr(Tree, name)

        def call(self, rel="", *rest, **more):
            steps.append((name, str(rel).rpartition("/")[2] or "."))
            return original(self, rel, *rest, **more)

        monkeypatch.setattr(Tree, name, call)

    for name in ("unlink", "sync_dir", "write_atomic"):
        noting(name)
    edge.free()
    files, ends = (
        [edge.path(number).rpartition("/")[2] for number in (1, 2)],
        (".mods", ".resource"),
    )
    first = steps.index(("write_atomic", "freed-00000001.state"))
    assert steps[first:] == [
        ("write_atomic", "freed-00000001.state"),
        ("write_atomic", "free.begun"),
        *(("unlink", each) for each in files),
        ("sync_dir", "0"),
        *(("unlink", f"{each}{end}") for each in files for end in ends),
        ("sync_dir", "0"),
        ("unlink", "free.begun"),
    ]


def test_a_damaged_note_of_what_was_begun_is_said(shared, make_edge):
    edge = make_edge(shared.url)
    edge.write(1)
    edge.round()
    (edge.schema / "sync" / "free.begun").write_bytes(b"{")
    with pytest.raises(TsferryError, match="damaged"):
        edge.free()
    assert len(edge.files) == 1
    in_sync(edge, shared)
