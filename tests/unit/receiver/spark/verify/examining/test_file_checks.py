from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numba")

from common.tsfile import read_tail
from common.tsfile.proving import series_proofs
from receiver.spark.report.results import Finding, Severity
from receiver.spark.verify.examining import file_checks
from receiver.spark.verify.examining.file_checks import check_part
from receiver.spark.verify.examining.findings import MOST_FINDINGS, Findings
from receiver.spark.verify.examining.parts import Expected, FilePart
from receiver.spark.verify.job import _together
from tests.support.tsfile_bytes import build

HOUR = 3_600_000
POINTS = [(1_000 + n * HOUR, n) for n in range(50)]
FILE = build(
    {"root.sg.d1": {"s1": POINTS, "s2": POINTS}, "root.sg.d2": {"s1": POINTS[:10]}},
    chunks=2,
    page_points=7,
)
PHYSICAL = "sequence/root.sg/0/0/1-1-0-0.tsfile"


def expecting(root: Path, content: bytes, **other: Any) -> Expected:
    place = root / PHYSICAL
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)
    tail = read_tail(content)
    known = {
        "physical": PHYSICAL,
        "roots": (str(root / "elsewhere"), str(root)),
        "size": len(content),
        "md5": hashlib.md5(content).hexdigest(),
        "devices": tuple(device.name for device in tail.devices),
        "series": tail.series_count,
        "points": tail.point_count,
        "manifest_series": tail.series_count,
        "manifest_points": tail.point_count,
        "manifest_root": series_proofs(content, tail).root if tail.complete else None,
        "database": "root.sg",
        "kind": "sequence",
    }
    return Expected(**(known | other))


@pytest.fixture
def good(tmp_path: Path) -> Expected:
    return expecting(tmp_path, FILE)


def check(expected: Expected, **other: Any) -> file_checks.CheckedPart:
    return check_part(FilePart(0, 0, 0, 0, expected), **other)


def found(expected: Expected, **other: Any) -> list[Finding]:
    return check(expected, **other).result.findings


def place_of(expected: Expected) -> Path:
    return Path(expected.roots[1]) / expected.physical


def test_a_good_file_has_no_findings_and_is_counted(good: Expected) -> None:
    checked = check(good, keep_chunks=True)
    result = checked.result
    assert result.findings == []
    assert (result.points, result.series, result.devices, result.chunks) == (110, 3, 2, 6)
    assert (result.md5, result.size) == (good.md5, len(FILE))
    assert result.days == {0: 24 * 2 + 10, 1: 48, 2: 4}
    assert sum(each.points for each in result.codecs) == 110
    assert checked.chunks is not None
    rows = checked.chunks.to_pylist()
    assert sum(row["points"] for row in rows) == 110
    assert {row["sum"] for row in rows if row["device"] == "root.sg.d2"} == {10.0, 35.0}


def test_spans_tell_the_range_the_typical_step_and_the_longest_gap(tmp_path: Path) -> None:
    times = [n * 10 for n in range(20)] + [5_000 + n * 10 for n in range(20)]
    content = build({"root.sg.d": {"s": [(t, 1) for t in times]}}, chunks=4, page_points=3)
    (span,) = check(expecting(tmp_path, content)).spans
    assert (span.first, span.last, span.rows) == (0, 5_190, 40)
    assert (span.interval, span.gap, span.gap_begins) == (10, 5_000 - 190, 190)


def test_nulls_of_aligned_devices_are_no_points_of_any_day(tmp_path: Path) -> None:
    devices = {"root.sg.d": {"a": POINTS, "b": POINTS[::3]}}
    content = build(devices, aligned=["root.sg.d"], page_points=9)
    result = check(expecting(tmp_path, content)).result
    assert result.findings == []
    assert result.points == sum(result.days.values()) == 50 + 17


def test_a_missing_file_is_for_the_driver_to_judge(good: Expected) -> None:
    result = check(replace(good, roots=("/nowhere",))).result
    assert result.absent
    assert result.findings == []


def test_a_directory_a_pipe_or_a_link_in_its_place_is_unproved(good: Expected) -> None:
    place = place_of(good)
    for make in (os.mkdir, os.mkfifo, lambda path: os.symlink("/etc/passwd", path)):
        place.unlink(missing_ok=True) if not place.is_dir() else place.rmdir()
        make(place)
        (only,) = found(good)
        assert (only.severity, only.check) == (Severity.UNPROVED, "present")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_unproved(good: Expected) -> None:
    place_of(good).chmod(0)
    (only,) = found(good)
    assert (only.severity, only.check) == (Severity.UNPROVED, "read")


@pytest.mark.parametrize("kept", [0, 5, 100, len(FILE) - 1])
def test_a_cut_file_is_bad_and_raises_nothing(good: Expected, kept: int) -> None:
    place = place_of(good)
    place.write_bytes(place.read_bytes()[:kept])
    assert found(good)[0].check == "size"
    assert {each.severity for each in found(good)} == {Severity.BAD}


@pytest.mark.parametrize(
    ("change", "check_name"),
    [
        ({"points": 111}, "counts"),
        ({"series": 2}, "counts"),
        ({"manifest_points": 109}, "manifest"),
        ({"manifest_series": 4}, "manifest"),
        ({"devices": ("root.sg.d1",)}, "devices"),
        ({"devices": ("root.sg.d1", "root.sg.d2", "root.sg.d3")}, "devices"),
    ],
)
def test_what_differs_from_catalogue_or_manifest_is_named(
    good: Expected, change: dict[str, Any], check_name: str
) -> None:
    (only,) = found(replace(good, **change))
    assert (only.severity, only.check) == (Severity.BAD, check_name)


def test_a_sender_without_a_manifest_is_no_problem(good: Expected) -> None:
    none = replace(good, manifest_series=None, manifest_points=None, manifest_root=None)
    assert found(none) == []


def test_another_manifest_root_sends_the_table_to_be_compared(good: Expected) -> None:
    assert check(good).result.table is None
    assert check(replace(good, manifest_root="0" * 32)).result.table is not None


def flipped(content: bytes, at: int) -> bytes:
    data = bytearray(content)
    data[at] ^= 0x10
    return bytes(data)


def test_a_flipped_bit_that_the_md5_would_not_tell_is_found_by_decoding(tmp_path: Path) -> None:
    """A file whose digest was taken after the damage: only its own statistics contradict it."""
    tail = read_tail(FILE)
    series = next(iter(tail.devices[0].series()))
    last_byte = series.chunks[1].offset - 1  # of the chunk before it, or of a group's header
    places = {last_byte - 40, series.chunks[0].offset + 60, tail.meta_offset - 3}
    for at in sorted(places):
        hurt = flipped(FILE, at)
        findings = found(expecting(tmp_path, hurt, manifest_root=None))
        assert [each.severity for each in findings] == [Severity.BAD], at
        assert findings[0].device is not None
        assert findings[0].offset is not None


def test_chunks_of_a_sequence_file_out_of_order_are_bad_and_of_a_late_one_are_not(
    tmp_path: Path,
) -> None:
    times = [*range(9), 15, 10, 11, 12, 13, 14, *range(16, 21)]
    content = build({"root.sg.d": {"s": [(time, 1) for time in times]}}, chunks=2)
    (only,) = found(expecting(tmp_path, content))
    assert (only.severity, only.check) == (Severity.BAD, "order")
    assert found(expecting(tmp_path, content, kind="unsequence")) == []


def test_an_encrypted_file_is_unproved(tmp_path: Path) -> None:
    content = build({"root.sg.d": {"s": POINTS}}, properties={"encryptLevel": "2"})
    (only,) = found(expecting(tmp_path, content))
    assert (only.severity, only.check) == (Severity.UNPROVED, "encrypted")


def meanwhile(change: Callable[[Path], object]) -> list[file_checks.CheckStep]:
    def step(file: file_checks._Open) -> bool:
        change(place_of(file.expected))
        return True

    return [*file_checks.STEPS[:2], step, *file_checks.STEPS[2:]]


def test_a_file_that_changes_or_goes_while_it_is_read_is_unproved_whatever_was_found(
    good: Expected,
) -> None:
    for change in (lambda path: os.truncate(path, 300), Path.unlink):
        findings = found(good, steps=meanwhile(change))
        assert {each.severity for each in findings} == {Severity.UNPROVED}
        assert findings[-1].check == "changed"


def test_a_file_that_takes_too_long_is_unproved(good: Expected) -> None:
    begun = time.monotonic()
    findings = found(good, steps=meanwhile(lambda _: time.sleep(1000)), limit=0.2)
    assert time.monotonic() - begun < 100
    assert [(each.severity, each.check) for each in findings] == [(Severity.UNPROVED, "limit")]


def test_of_too_many_findings_the_bad_ones_are_kept() -> None:
    findings = Findings()
    for number in range(MOST_FINDINGS + 5):
        findings.unproved("unsupported", f"x{number}")
    findings.bad("pages", "y")
    assert len(findings.kept) == MOST_FINDINGS
    assert findings.dropped == 6
    assert findings.kept[-1].severity is Severity.BAD


def test_what_is_met_at_every_chunk_is_said_once() -> None:
    findings = Findings()
    for _ in range(3):
        findings.bad("pages", "no header")
    findings.bad("pages", "another")
    assert [each.detail for each in findings.kept] == ["no header", "another"]
    assert findings.dropped == 0


def test_memory_that_is_not_there_is_no_fault_of_the_file(good: Expected) -> None:
    def exhausted(_: Path) -> None:
        raise MemoryError

    (only,) = found(good, steps=meanwhile(exhausted))
    assert (only.severity, only.check) == (Severity.UNPROVED, "limit")


def test_parts_of_a_file_say_together_what_the_whole_says(tmp_path: Path) -> None:
    devices = {f"root.sg.d{n}": {"s": POINTS[: 5 + n]} for n in range(9)}
    expected = expecting(tmp_path, build(devices))
    whole = check(expected, keep_chunks=True)
    parts = [check_part(FilePart(0, at, 3, 0, expected), keep_chunks=True) for at in range(4)]
    assert all(part.result.findings == [] for part in parts)
    assert sum(part.result.points for part in parts) == whole.result.points
    assert [part.result.points > 0 for part in parts] == [False, True, True, True]
    rows = [row for part in parts[1:] for row in part.chunks.to_pylist()]
    assert sorted(rows, key=str) == sorted(whole.chunks.to_pylist(), key=str)
    gaps = {span.device: span.gap for part in parts[1:] for span in part.spans}
    assert gaps == {span.device: span.gap for span in whole.spans}


def test_a_part_that_cannot_decode_its_devices_says_so_and_twice_the_same_counts_once(
    good: Expected,
) -> None:
    """The file may have been cut after another part found it whole."""
    plain = Expected(str(Path(good.roots[1]) / good.physical))
    Path(plain.physical).write_bytes(FILE[:-9])
    first, second = (check_part(FilePart(0, at, 2, 0, plain)).result for at in (0, 1))
    assert [each.check for each in second.findings] == ["structure"]
    assert _together(first, second).findings == first.findings


def test_a_name_that_is_no_utf8_is_written_out(tmp_path: Path) -> None:
    place = tmp_path / os.fsdecode(b"a\xff.tsfile")
    place.write_bytes(FILE)
    checked = check(Expected(str(place)), keep_chunks=True)
    assert checked.result.findings == []
    assert checked.chunks["physical"][0].as_py().endswith("a\\xff.tsfile")


def test_a_plain_file_that_may_be_open_or_is_of_an_old_version_is_unproved(tmp_path: Path) -> None:
    place = tmp_path / "open.tsfile"
    for content, name in (
        (FILE[:-7], "structure"),
        (b"TsFile" + b"000002" + FILE[12:], "unsupported"),
    ):
        place.write_bytes(content)
        (only,) = found(Expected(str(place)))
        assert (only.severity, only.check) == (Severity.UNPROVED, name)
