"""A file in the object store only is proved from there, and is bad for nothing but its content."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from common.config import load
from common.durable import Tree
from receiver.config import ENV_PREFIX, ReceiverConfig
from receiver.metadata.model import records
from receiver.spark.report.results import Severity
from receiver.spark.verify.committed import CommittedFiles
from receiver.spark.verify.examining.duplicates import Pair, common_times
from receiver.spark.verify.examining.file_checks import CheckedPart, check_part
from receiver.spark.verify.examining.parts import FilePart
from receiver.spark.verify.examining.reading_ahead import read_ahead
from receiver.spark.verify.file_scope import FileScope
from receiver.storage.log_copies.log_shipping import LogShipper
from receiver.storage.reading import open_stores
from receiver.storage.stores.incarnation import own_incarnation
from receiver.storage.stores.owned_prefix import own_prefix
from receiver.storage.stores.store_opening import open_store
from tests.support.spark_world import NORTH
from tests.support.stored_world import StoredWorld, large
from tests.support.tsfile_bytes import build

PATH = "sequence/root.wind/0/0/{0}-{0}-0-0.tsfile"
"""Of sequence files."""


@pytest.fixture(autouse=True)
def fresh() -> None:
    open_stores.of_process.__init__()  # type: ignore[misc]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[StoredWorld]:
    (tmp_path / "bucket").mkdir()
    made = StoredWorld(tmp_path)
    made.configure((tmp_path / "bucket").as_uri())
    yield made
    made.engine.close()


def small(number: int, value: int = 1) -> bytes:
    return build({"root.wind.d1": {"s1": [(number * 100 + n, value) for n in range(50)]}})


def config_of(world: StoredWorld) -> ReceiverConfig:
    return load(
        ReceiverConfig, file=world.config, env_prefix=ENV_PREFIX, environ={}, flags={}
    ).value


def checked(world: StoredWorld, shares: int = 0) -> list[CheckedPart]:
    """All parts of all files, as a worker does them."""
    with CommittedFiles(config_of(world), FileScope()) as catalogue:
        parts = [
            FilePart(at, number, shares, 0, each.expected)
            for at, each in enumerate(catalogue.files)
            for number in range(shares + 1)
        ]
        return [check_part(each, keep_chunks=True) for each in read_ahead(parts)]


def findings(part: CheckedPart) -> list[tuple[Severity, str]]:
    return [(each.severity, each.check) for each in part.result.findings]


def test_what_is_found_is_what_is_found_on_the_disk(world: StoredWorld) -> None:
    content, _ = large()
    world.load(NORTH, PATH.format(1), small(1))
    world.load(NORTH, PATH.format(2), content)
    before = [checked(world), checked(world, 3)]
    world.upload()
    after = [checked(world), checked(world, 3)]
    assert not any(findings(part) for parts in after for part in parts)
    assert sum(part.result.points for part in after[0]) == 50 + 10 * 2 * 12
    for parts, others in zip(before, after, strict=True):
        for one, other in zip(parts, others, strict=True):
            assert msgspec.to_builtins(one.result) == msgspec.to_builtins(other.result)
            assert one.spans == other.spans
            assert one.chunks == other.chunks


def test_a_file_that_was_bad_before_it_was_uploaded_is_bad(world: StoredWorld) -> None:
    content = bytearray(build({"root.wind.d1": {"s2": [(7, "x" * 40)]}}))
    content[content.index(b"x" * 40) - 2] ^= 0xFF
    world.load(NORTH, PATH.format(1), bytes(content))
    world.upload()
    (part,) = checked(world)
    assert findings(part) == [(Severity.BAD, "pages")]


@pytest.mark.few(3)
@pytest.mark.parametrize("how", ["other bytes", "cut", "gone", "store gone"])
@pytest.mark.parametrize("size", ["small", "large"])
def test_what_is_wrong_with_the_store_is_never_a_fault_of_the_file(
    world: StoredWorld, how: str, size: str
) -> None:
    world.load(NORTH, PATH.format(1), small(1) if size == "small" else large()[0])
    world.upload()
    place = world.object(world.physicals()[0])
    if how == "other bytes":
        bad = bytearray(place.read_bytes())
        bad[len(bad) // 2] ^= 1
        place.write_bytes(bad)
    elif how == "cut":
        place.write_bytes(place.read_bytes()[:-1])
    elif how == "gone":
        place.unlink()
    else:
        (world.root / "bucket").rename(world.root / "elsewhere")
    for shares in (0, 2):
        for part in checked(world, shares):
            assert all(severity is Severity.UNPROVED for severity, _ in findings(part)), how
        assert any(findings(each) for each in checked(world, shares))


def test_one_that_is_uploaded_while_the_job_runs_is_unproved_and_neither_lost(
    world: StoredWorld,
) -> None:
    world.load(NORTH, PATH.format(1), small(1))
    with CommittedFiles(config_of(world), FileScope()) as catalogue:
        (file,) = catalogue.files
        assert file.expected.place is None
        world.upload()
        part = check_part(FilePart(0, 0, 0, 0, file.expected))
        assert part.result.absent
        finding = catalogue.absences.of_file(file.row)
        assert (finding.severity, finding.check) == (Severity.UNPROVED, "present")
        assert "since this began" in finding.detail


def test_duplicates_are_counted_in_files_of_the_store(world: StoredWorld) -> None:
    world.load(NORTH, PATH.format(1), small(1))
    world.load(NORTH, PATH.format(1).replace("sequence", "unsequence"), small(1, value=2))
    world.upload()
    with CommittedFiles(config_of(world), FileScope()) as catalogue:
        early, late = sorted(catalogue.files, key=lambda each: each.expected.kind)
        pair = Pair(early.expected, late.expected, ("root.wind.d1",))
        (found,) = common_times(pair, None)
    assert found.points == 50


def test_a_neighbour_that_is_not_asked_for_has_its_place_too(world: StoredWorld) -> None:
    world.load(NORTH, PATH.format(1), small(1))
    world.load(NORTH, PATH.format(2), small(2))
    world.upload()
    first, _ = world.physicals()
    world.engine.commit([records.FileVerified([first])])
    with CommittedFiles(config_of(world), FileScope(new=True)) as catalogue:
        (neighbour,) = catalogue.neighbours()
    assert neighbour.expected.place is not None


def copies(world: StoredWorld) -> CommittedFiles:
    config = config_of(world)
    return CommittedFiles(config, FileScope(), lambda: 1.7e9, copies=True)


def test_the_copies_are_proved_where_no_receiver_is(
    world: StoredWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    physical = str(world.load(NORTH, PATH.format(1), small(1)).relative_to(world.data))
    world.load(NORTH, PATH.format(2), large()[0])
    world.upload()
    late = str(world.load(NORTH, PATH.format(3), small(3)).relative_to(world.data))
    bad = bytearray(world.object(physical).read_bytes())
    (tmp_path / physical).parent.mkdir(parents=True)
    (tmp_path / physical).write_bytes(bad[:-1])  # what lies here under its name is another file
    monkeypatch.chdir(tmp_path)
    store = open_store(world.url)
    own_prefix(store, world.engine.uuid)
    with Tree(world.root / "schema") as home:
        owner = own_incarnation(store, home, world.engine.uuid)
        LogShipper(world.engine.published, home, store, owner).ship()
    store.close()
    world.engine.close()
    shutil.rmtree(world.root / "schema")
    shutil.rmtree(world.data)
    with copies(world) as catalogue:
        parts = [FilePart(at, 0, 0, 0, each.expected) for at, each in enumerate(catalogue.files)]
        found = [check_part(each) for each in read_ahead(parts)]
        late_ones = [
            (findings(part), part.result.findings[0].detail)
            for each, part in zip(catalogue.files, found, strict=True)
            if each.row.physical == late
        ]
    assert sum(each.result.points for each in found) == 50 + 10 * 2 * 12
    ((said, detail),) = late_ones
    assert said == [(Severity.UNPROVED, "read")]
    assert "yet" in detail
    assert sum(bool(findings(each)) for each in found) == 1
