from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("numba")

from common.config import load as load_config
from common.errors import NotFoundError
from receiver.config import ENV_PREFIX, ReceiverConfig
from receiver.metadata.model import records
from receiver.metadata.model.centre_source import centre_uuid
from receiver.metadata.model.timestamps import to_seconds
from receiver.metadata.state.packed_file import whole
from receiver.metadata.state.state import State
from receiver.metadata.state.table_rows import OwnerRow
from receiver.spark.report.results import Finding, Severity
from receiver.spark.verify.committed import CommittedFiles, _ownership
from receiver.spark.verify.examining.file_checks import check_part
from receiver.spark.verify.examining.parts import FilePart
from receiver.spark.verify.file_scope import FileScope
from receiver.spark.verify.verifying import _against_manifest
from tests.support.spark_world import NORTH, SOUTH, World
from tests.support.tsfile_bytes import build

PATH = "sequence/root.wind_park/0/0/{n}-{n}-0-0.tsfile"
POINTS = [(n, n) for n in range(20)]


def file_of(device: str = "root.wind_park.d1", value: object = 1) -> bytes:
    return build({device: {"s1": [(n, value) for n in range(20)], "s2": POINTS}})


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.engine.close()


def config_of(world: World) -> ReceiverConfig:
    return load_config(
        ReceiverConfig, file=world.config, env_prefix=ENV_PREFIX, environ={}, flags={}
    ).value


def catalogue(world: World, scope: FileScope | None = None, **other: object) -> CommittedFiles:
    return CommittedFiles(config_of(world), scope or FileScope(), **other)  # type: ignore[arg-type]


def names(found: CommittedFiles) -> list[str]:
    return [each.row.path.rpartition("/")[2].partition("-")[0] for each in found.files]


# -- scope


def test_new_files_are_those_without_a_verdict_or_changed_since_it(world: World) -> None:
    places = [
        world.load(NORTH, PATH.format(n=n), file_of(f"root.wind_park.d{n}")) for n in (1, 2, 3)
    ]
    physical = [str(each.relative_to(world.data)) for each in places]
    world.engine.commit([records.FileVerified(physicals=physical[:2])])
    with catalogue(world, FileScope(new=True)) as found:
        assert names(found) == ["3"]
        assert found.passed_over == 2
        assert not found.is_hidden
    world.engine.commit([records.FileRetired(physical=physical[0])])
    with catalogue(world, FileScope(new=True)) as found:
        assert names(found) == ["1", "3"]


def test_scrubbing_takes_what_was_not_looked_at_for_long(world: World) -> None:
    place = world.load(NORTH, PATH.format(n=1), file_of())
    physical = str(place.relative_to(world.data))
    verified = to_seconds(world.engine.commit([records.FileVerified(physicals=[physical])]))
    month = FileScope(older_than=30 * 86400.0)
    with catalogue(world, month, clock=lambda: verified + 29 * 86400) as found:
        assert names(found) == []
    with catalogue(world, month, clock=lambda: verified + 31 * 86400) as found:
        assert names(found) == ["1"]
    assert str(month) == "not verified for 30d"


def test_an_unknown_task_is_named(world: World) -> None:
    world.load(NORTH, PATH.format(n=1), file_of())
    with pytest.raises(NotFoundError, match="f" * 32):
        catalogue(world, FileScope(task="f" * 32))


def test_files_of_the_same_partition_are_neighbours_and_retired_ones_are_not(world: World) -> None:
    one = world.load(NORTH, PATH.format(n=1), file_of("root.wind_park.d1"))
    gone = world.load(NORTH, PATH.format(n=2), file_of("root.wind_park.d2"))
    world.load(NORTH, "sequence/root.wind_park/0/9/3-3-0-0.tsfile", file_of("root.wind_park.d3"))
    places = [str(each.relative_to(world.data)) for each in (one, gone)]
    world.engine.commit([records.FileVerified(physicals=places)])
    world.engine.commit([records.FileRetired(physical=places[1])])
    world.engine.commit([records.FileVerified(physicals=places)])
    with catalogue(world, FileScope(new=True)) as found:
        assert names(found) == ["3"]
        assert found.neighbours() == []
    with catalogue(world, FileScope()) as found:
        assert found.is_hidden  # a retired file gives points, too
    world.load(NORTH, PATH.format(n=4), file_of("root.wind_park.d4"))
    with catalogue(world, FileScope(new=True)) as found:
        (neighbour,) = found.neighbours()
    assert neighbour.expected.physical == places[0]
    assert neighbour.ranges == (("root.wind_park.d1", 0, 19),)


# -- what the catalogue alone can tell


@pytest.mark.parametrize(("since", "problems"), [(-1, 1), (1, 0)])
def test_a_file_of_a_device_that_was_another_s_when_it_was_loaded_is_a_problem(
    world: World, since: int, problems: int
) -> None:
    """The rules of the engine refuse such a commit; what a log of other days holds is looked at."""
    world.load(NORTH, PATH.format(n=1), file_of())
    with catalogue(world) as found:
        row = found.files[0].row
    moved = row.created + since
    owner = OwnerRow(created=moved, changed=moved, sender=SOUTH)
    state = State()
    state.owners["root.wind_park.d1"] = owner
    findings = list(_ownership(state, row, row.devices.names()))
    centre = msgspec.structs.replace(whole(row), sender=centre_uuid("e" * 32))
    assert list(_ownership(state, centre, row.devices.names())) == []
    assert [(each.severity, each.check) for each in findings] == [
        (Severity.PROBLEM, "owner")
    ] * problems


def test_a_file_past_its_ttl_that_is_still_there_is_a_problem(world: World) -> None:
    world.load(NORTH, PATH.format(n=1), file_of(), registered=True)
    with catalogue(world) as found:
        assert found.files[0].findings == ()
    world.engine.commit([records.TtlSet(path="root.wind_park", ttl=60_000)])
    with catalogue(world) as found:
        assert [each.check for each in found.files[0].findings] == ["ttl"]


# -- schema


def schema_findings(world: World, content: bytes) -> tuple[Finding, ...]:
    world.load(NORTH, PATH.format(n=9), content, registered=True)
    with catalogue(world) as found:
        file = found.files[-1]
        outline = check_part(FilePart(0, 0, 0, 0, file.expected)).result.outline
        assert outline is not None
        return found.against_schema(file, outline)


def test_series_as_the_schema_has_them_are_not_worth_a_word(world: World) -> None:
    assert schema_findings(world, file_of()) == ()


def created(
    names: list[str], types: bytes, encodings: bytes, compressions: bytes
) -> list[records.Op]:
    return [
        records.StorageGroupSet("root.wind_park"),
        records.SeriesCreated(
            device="root.wind_park.d1", names=names, types=types, encodings=encodings,
            compressions=compressions,
        ),
    ]  # fmt: skip


def test_another_encoding_than_in_the_schema_is_a_note(world: World) -> None:
    world.engine.commit(created(["s1", "s2"], b"\2\2", b"\2\0", b"\0\0"))
    (note,) = schema_findings(world, file_of())
    assert (note.severity, note.check) == (Severity.NOTE, "codec")
    assert "root.wind_park.d1.s1 PLAIN/UNCOMPRESSED, not RLE/UNCOMPRESSED" in note.detail


def test_another_type_than_in_the_schema_is_a_problem_and_a_series_that_is_gone_a_note(
    world: World,
) -> None:
    world.load(NORTH, PATH.format(n=1), file_of(), registered=True)
    world.engine.commit([records.SeriesDeleted(pattern="root.wind_park.d1.*")])
    world.engine.commit(created(["s1"], b"\5", b"\0", b"\0")[1:])
    with catalogue(world) as found:
        file = found.files[0]
        outline = check_part(FilePart(0, 0, 0, 0, file.expected)).result.outline
        assert outline is not None
        problem, note = found.against_schema(file, outline)
    assert (problem.severity, problem.check) == (Severity.PROBLEM, "type")
    assert (problem.measurement, problem.detail) == ("s1", "INT64 in the file, TEXT in the schema")
    assert (note.severity, note.check) == (Severity.NOTE, "schema")


# -- manifest


def test_the_series_that_differ_from_what_was_sent_are_named(world: World) -> None:
    place = world.load(NORTH, PATH.format(n=1), file_of(value=7), sent=file_of(value=8))
    with catalogue(world) as found:
        file = found.files[0]
        table = check_part(FilePart(0, 0, 0, 0, file.expected)).result.table
        assert table is not None
        (only,) = _against_manifest(found, file, table)
        assert (only.severity, only.check) == (Severity.BAD, "manifest")
        assert (only.device, only.measurement) == ("root.wind_park.d1", "s1")
        shutil.rmtree(world.data / "sync-receiver")
        (only,) = _against_manifest(found, file, table)
        assert "which ones is unknown" in only.detail
    assert place.is_file()


@pytest.mark.parametrize("put", [Path.mkdir, os.mkfifo, lambda at: at.symlink_to("/etc/passwd")])
def test_a_table_that_is_no_file_costs_the_names_of_the_series_and_not_the_run(
    world: World, put: Callable[[Path], None]
) -> None:
    world.load(NORTH, PATH.format(n=1), file_of(value=7), sent=file_of(value=8))
    (kept,) = (world.data / "sync-receiver").rglob("*.tsf")
    kept.unlink()
    put(kept)
    with catalogue(world) as found:
        said = found.sent_table(found.files[0])
    assert isinstance(said, str)
    assert kept.name[:16] in said


# -- absence


def absence(world: World, found: CommittedFiles, at: int = 0) -> Finding:
    return found.absences.of_file(found.files[at].row)


def test_a_file_is_lost_only_if_its_disk_is_there(world: World) -> None:
    place = world.load(NORTH, PATH.format(n=1), file_of())
    other = world.load(NORTH, PATH.format(n=2), file_of("root.wind_park.d2"))
    place.unlink()
    with catalogue(world) as found:
        lost = absence(world, found)
    assert (lost.severity, lost.check) == (Severity.BAD, "present")
    assert other.is_file()


@pytest.mark.parametrize("state", ["gone", "empty", "other"])
def test_a_disk_that_is_not_mounted_makes_no_file_bad(world: World, state: str) -> None:
    world.load(NORTH, PATH.format(n=1), file_of())
    shutil.rmtree(world.data)
    if state != "gone":
        world.data.mkdir()
    if state == "other":  # the directory below the mount point holds what a start left there
        (world.data / "sync-receiver").mkdir()
    with catalogue(world) as found:
        finding = absence(world, found)
    assert (finding.severity, finding.check) == (Severity.UNPROVED, "present")
    assert str(world.data) in finding.detail


def test_one_disk_of_two_that_is_away_makes_no_file_bad(world: World) -> None:
    """The file may be there: files are found in whichever data directory has them."""
    place = world.load(NORTH, PATH.format(n=1), file_of())
    world.load(NORTH, PATH.format(n=2), file_of("root.wind_park.d2"))
    place.unlink()
    world.config.write_text('schema_dir = "schema"\ndata_dirs = ["data", "second"]\n')
    with catalogue(world) as found:
        assert absence(world, found).severity is Severity.UNPROVED


def test_a_file_that_this_machine_sees_is_not_lost(world: World) -> None:
    world.load(NORTH, PATH.format(n=1), file_of())
    with catalogue(world) as found:
        finding = absence(world, found)
    assert finding.severity is Severity.UNPROVED
    assert "a worker did not" in finding.detail


def test_a_file_that_this_machine_cannot_look_for_is_not_lost(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.load(NORTH, PATH.format(n=1), file_of())

    def stale(_: Path) -> None:
        raise OSError(errno.ESTALE, "stale file handle")

    with catalogue(world) as found:
        monkeypatch.setattr(Path, "lstat", stale)
        finding = absence(world, found)
        monkeypatch.undo()
    assert finding.severity is Severity.UNPROVED
    assert "stale file handle" in finding.detail


def test_a_file_that_was_deleted_meanwhile_is_not_lost(world: World) -> None:
    place = world.load(NORTH, PATH.format(n=1), file_of())
    world.load(NORTH, PATH.format(n=2), file_of("root.wind_park.d2"))
    with catalogue(world) as found:
        physical = str(place.relative_to(world.data))
        world.engine.commit([records.FileDeleted(physical, "expired")])
        place.unlink()
        finding = absence(world, found)
    assert (finding.severity, finding.check) == (Severity.UNPROVED, "changed")
