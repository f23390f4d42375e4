"""A merged file is proved by what its inputs give now, and a bad one is read no more."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("numba")

from common.config import load as load_config
from common.tsfile import read_tail
from receiver.config import ENV_PREFIX, ReceiverConfig
from receiver.load.merge_verdicts import BadMerge, dissolve_bad, record_merges
from receiver.metadata.model import records
from receiver.spark.report.results import Finding, Judgement, MergedResult, Severity
from receiver.spark.verify import delivery, merge_proofs
from receiver.spark.verify.committed import CommittedFiles
from receiver.spark.verify.examining.merge_checks import MergePart, check_merge_part
from receiver.spark.verify.file_scope import FileScope
from receiver.spark.verify.merge_proofs import merge_parts
from receiver.spark.verify.verifying import bad_merges, proved_merges
from tests.support.compacting import compact
from tests.support.spark_world import NORTH, World
from tests.support.tsfile_bytes import build
from tests.support.verifications import run

PATH = "{kind}/root.wind/0/0/{n}-{n}-0-0.tsfile"
D1, D2, AT = "root.wind.d1", "root.wind.d2", "root.wind.at"
Devices = dict[str, dict[str, list[tuple[int, object]]]]
FIRST: Devices = {
    D1: {"a": [(n, n) for n in range(20)]}, AT: {"s": [(1, "x")], "f": [(1, 1.5)]},
}  # fmt: skip
SECOND: Devices = {D1: {"a": [(n, n) for n in range(20, 30)]}, D2: {"a": [(1, 7)]}}
LATE: Devices = {
    D1: {"a": [(5, 500), (25, 600)], "b": [(3, 1)]}, AT: {"f": [(1, 2.5), (2, 3.5)]},
}  # fmt: skip
ROWS = {1: ("sequence", FIRST), 2: ("sequence", SECOND), 3: ("unsequence", LATE)}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    for n, (kind, devices) in ROWS.items():
        made.load(NORTH, PATH.format(kind=kind, n=n), build(devices, aligned=[AT]))
    yield made
    made.engine.close()


def config_of(world: World) -> ReceiverConfig:
    return load_config(
        ReceiverConfig, file=world.config, env_prefix=ENV_PREFIX, environ={}, flags={}
    ).value


def inputs_of(world: World) -> list[str]:
    with world.engine.reading() as state:
        return sorted(state.files)


def merged(world: World, cuts: tuple[int, ...] = ()) -> list[Path]:
    inputs = inputs_of(world)
    return compact(world.engine, world.root / "schema", world.data, inputs, 1, cuts)


def made_of(world: World, devices: Devices) -> None:
    """Commit a compaction whose output was made by somebody else."""
    content = build(devices, aligned=[AT])
    name = "sequence/root.wind/0/0/merged-1-1.tsfile"
    (world.data / name).write_bytes(content)
    tail = read_tail(content)
    output = records.CompactionOutput(
        name, len(content), hashlib.md5(content).hexdigest(), 4,
        [records.DeviceRange(each.name, each.start, each.end) for each in tail.devices],
        tail.first_time, tail.last_time, tail.series_count, tail.point_count, str(world.data),
    )  # fmt: skip
    at = world.engine.newest_commit
    world.engine.commit([records.FilesCompacted(1, at, inputs_of(world), [output])])


def checked(world: World, scope: FileScope | None = None) -> tuple[MergedResult, ...]:
    """What a run would say, without Spark."""
    with CommittedFiles(config_of(world), scope or FileScope()) as found:
        results = []
        for at, asked in enumerate(found.compactions()):
            parts = pickle.loads(pickle.dumps(list(merge_parts(at, asked))))
            results += merge_proofs._results(found, asked, [check_merge_part(e) for e in parts])
        return tuple(results)


def findings(results: tuple[MergedResult, ...]) -> list[Finding]:
    return [found for each in results for found in each.findings]


@pytest.mark.parametrize("cuts", [(), (10,), (1, 25)])
def test_a_merged_file_that_is_as_it_was_made_is_proved(
    world: World, cuts: tuple[int, ...]
) -> None:
    places = merged(world, cuts)
    results = checked(world)
    assert [each.physical for each in results] == [str(e.relative_to(world.data)) for e in places]
    assert findings(results) == []
    assert {each.verdict for each in results} == {Judgement.PROVED}
    assert {each.stands_for for each in results} == {3}
    assert results[0].points == 30 + 1 + 1 + 2 + 1
    assert [each.size for each in results] == [each.stat().st_size for each in places]
    assert bad_merges(run([], merged=results)) == []


GOOD: Devices = {
    D1: {"a": [(n, {5: 500, 25: 600}.get(n, n)) for n in range(30)], "b": [(3, 1)]},
    D2: {"a": [(1, 7)]},
    AT: {"s": [(1, "x")], "f": [(1, 2.5), (2, 3.5)]},
}


def changed(device: str, name: str, points: list[tuple[int, object]] | None) -> Devices:
    found = {each: dict(series) for each, series in GOOD.items()}
    if points is None:
        del found[device][name]
    else:
        found[device][name] = points
    return {each: series for each, series in found.items() if series}


def test_what_others_made_of_the_same_is_proved_too(world: World) -> None:
    made_of(world, GOOD)
    assert findings(checked(world)) == []


@pytest.mark.parametrize(
    ("device", "name", "points", "said"),
    [
        (D1, "b", [(3, 2)], "its 1 points are not those"),
        (D1, "b", [(4, 1)], "its 1 points are not those"),
        (D1, "b", None, "gives 0 points, readers get 1"),
        (D1, "a", [(n, n) for n in range(30)], "its 30 points are not those"),
        (D1, "a", GOOD[D1]["a"][:-1], "gives 29 points, readers get 30"),
        (D2, "a", None, "gives 0 points, readers get 1"),
        (D2, "c", [(1, 1)], "gives 1 points, readers get 0"),
        (D2, "a", [(1, 7.0)], "has type"),
        (AT, "s", [(1, "y")], "its 1 points are not those"),
        (AT, "f", [(1, 1.5), (2, 3.5)], "its 2 points are not those"),
    ],
)
def test_each_series_that_differs_is_named_and_the_compaction_dissolved(
    world: World, device: str, name: str, points: list[tuple[int, object]] | None, said: str
) -> None:
    made_of(world, changed(device, name, points))
    results = checked(world)
    (found,) = findings(results)
    assert (found.severity, found.check, found.device, found.measurement) == (
        Severity.BAD, "merged", device, name,
    )  # fmt: skip
    assert said in found.detail
    (bad,) = bad_merges(run([], merged=results))
    assert bad.ident == 1
    assert bad.reason.startswith("sequence/root.wind/0/0/merged-1-1.tsfile: ")
    assert said in bad.reason
    assert dissolve_bad(world.engine, [bad]) == 1
    commit = world.engine.newest_commit
    with world.engine.reading() as state:
        assert state.compacted_table.rows[1].reason == bad.reason
    assert checked(world) == ()
    assert dissolve_bad(world.engine, [bad, BadMerge(99, "gone")]) == 2
    assert world.engine.newest_commit == commit


def test_rows_without_a_value_count_in_tables_and_times_of_aligned_devices(world: World) -> None:
    made_of(world, changed(AT, "f", [(1, 2.5)]))
    series = {(each.device, each.measurement) for each in findings(checked(world))}
    assert series == {(AT, "f"), (AT, "")}


def test_a_rotten_and_a_lost_output_are_bad(world: World) -> None:
    rotten, lost = merged(world, (10,))
    content = bytearray(rotten.read_bytes())
    content[20] ^= 1
    rotten.write_bytes(content)
    lost.unlink()
    one, other = checked(world)
    assert "md5" in {each.check for each in one.findings}
    assert {(each.check, each.severity) for each in other.findings} == {("present", Severity.BAD)}
    assert [each.verdict for each in (one, other)] == [Judgement.BAD] * 2


def test_a_disk_that_is_not_mounted_says_nothing(world: World) -> None:
    merged(world)
    world.data.rename(world.root / "away")
    world.data.mkdir()
    (result,) = checked(world)
    assert result.verdict is Judgement.UNPROVED
    assert {each.severity for each in result.findings} <= {Severity.UNPROVED, Severity.NOTE}


def test_an_input_that_cannot_be_read_says_nothing_of_the_output(world: World) -> None:
    merged(world)
    (world.data / inputs_of(world)[0]).unlink()
    (result,) = checked(world)
    (found,) = result.findings
    assert (found.severity, found.check) == (Severity.NOTE, "merged")
    assert result.verdict is Judgement.PROVED


def test_an_output_that_went_with_its_compaction_is_none_of_our_business(world: World) -> None:
    (place,) = merged(world)
    with CommittedFiles(config_of(world), FileScope()) as found:
        (asked,) = found.compactions()
        place.unlink()
        world.engine.commit([records.CompactionDissolved(1, "its room is needed")])
        parts = [check_merge_part(each) for each in merge_parts(0, asked)]
        (result,) = merge_proofs._results(found, asked, parts)
    assert [(each.severity, each.check) for each in result.findings] == [(Severity.NOTE, "changed")]


def test_in_shares_each_device_is_compared_once(world: World) -> None:
    made_of(world, changed(D2, "a", [(1, 8)]))
    with CommittedFiles(config_of(world), FileScope()) as found:
        (asked,) = found.compactions()
    parts = [MergePart(0, asked, None, share, 3, 0) for share in range(3)]
    results = [check_merge_part(each) for each in parts]
    assert sum(each.points for each in results) == 30 + 1 + 1 + 1 + 2
    assert [len(each.findings) for each in results if each.findings] == [1]


def test_time_that_is_up_is_no_verdict(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    merged(world)

    def slow(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("receiver.spark.verify.examining.merge_checks.survey", slow)
    (result,) = checked(world)
    assert [each.check for each in result.findings] == ["limit"]
    assert result.verdict is Judgement.UNPROVED


def test_new_merged_files_are_compared_whoever_has_verified_their_inputs(world: World) -> None:
    merged(world)
    assert len(checked(world, FileScope(new=True))) == 1
    world.engine.commit([records.FileVerified(inputs_of(world)[:1])])
    assert len(checked(world, FileScope(new=True))) == 1, "nobody has compared it"
    assert len(checked(world)) == 1
    with CommittedFiles(config_of(world), FileScope()) as found:
        assert found.replaced() == frozenset(inputs_of(world))


def test_what_was_compared_and_right_is_committed_and_not_looked_at_as_new(world: World) -> None:
    merged(world, (10,))
    world.engine.commit([records.FileVerified(inputs_of(world)[1:])])
    proved = proved_merges(run([], merged=checked(world, FileScope(new=True))))
    assert record_merges(world.engine, proved, by="verification") == 1
    with world.engine.reading() as state:
        row = state.compacted_table.rows[1]
        assert (row.verified, row.verifier) == (state.newest, "verification")
    assert checked(world, FileScope(new=True)) == (), "one of its inputs is new, and no more"
    world.engine.commit([records.FileVerified(inputs_of(world))])
    with CommittedFiles(config_of(world), FileScope(new=True)) as found:
        assert found.is_idle
    assert len(checked(world, FileScope(older_than=0.0))) == 2


def test_what_could_not_be_compared_is_no_verdict_for_it(world: World) -> None:
    merged(world)
    (world.data / inputs_of(world)[0]).unlink()
    results = checked(world)
    assert [each.verdict for each in results] == [Judgement.PROVED], "it is sound in itself"
    assert "not compared" in findings(results)[0].detail
    assert not results[0].compared
    assert proved_merges(run([], merged=results)) == []


def test_one_bad_merged_file_is_no_verdict_for_the_others_of_its_merge(world: World) -> None:
    places = merged(world, (10,))
    places[0].write_bytes(places[0].read_bytes()[:-1])
    assert proved_merges(run([], merged=checked(world))) == []


def test_one_of_which_nothing_is_left_is_compared_too(world: World) -> None:
    at = world.engine.newest_commit
    world.engine.commit([records.FilesCompacted(1, at, inputs_of(world), [])])
    results = checked(world)
    assert [each.physical for each in results] == ["sequence/root.wind/0/0/merged-1"]
    assert results[0].verdict is Judgement.BAD
    assert proved_merges(run([], merged=results)) == []


def test_without_a_server_it_is_dissolved_here(world: World) -> None:
    merged(world)
    world.engine.close()
    bad = [BadMerge(1, "x" * 10_000)]
    assert delivery.deliver_merges(config_of(world), bad, []).dissolved == 1
    assert delivery.deliver_merges(config_of(world), [], []).dissolved == 0
    delivery.tell_crowded(config_of(world), [])
    again = World.reopened(world.root)
    with again.engine.reading() as state:
        row = state.compacted_table.rows[1]
        assert row.dissolved
        assert len(row.reason) == 500
    world.engine = again.engine


def test_without_a_server_a_verdict_on_a_merge_is_committed_here(world: World) -> None:
    merged(world)
    proved = proved_merges(run([], merged=checked(world)))
    world.engine.close()
    assert delivery.deliver_merges(config_of(world), [], proved).merges_verified == 1
    world.engine = World.reopened(world.root).engine
    with world.engine.reading() as state:
        assert state.compacted_table.rows[1].verifier == "verification"
