from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from common.tsfile import read_tail
from receiver.spark.checks import Expected, check_file
from tests.support.tsfile_bytes import build

POINTS = [(1_000 + n, n) for n in range(50)]
FILE = build(
    devices={"root.sg.d1": {"s1": POINTS, "s2": POINTS}, "root.sg.d2": {"s1": POINTS[:10]}}
)


@pytest.fixture
def good(tmp_path: Path) -> Expected:
    place = tmp_path / "f.tsfile"
    place.write_bytes(FILE)
    tail = read_tail(FILE)
    return Expected(
        physical="sequence/root.sg/0/0/1-1-0-0.tsfile",
        locations=[str(tmp_path / "elsewhere" / "f.tsfile"), str(place)],
        size=len(FILE),
        md5=hashlib.md5(FILE).hexdigest(),
        devices=["root.sg.d1", "root.sg.d2"],
        series=tail.series_count,
        points=tail.point_count,
        manifest_series=tail.series_count,
        manifest_points=tail.point_count,
    )


def checks(expected: Expected) -> list[str]:
    return [each.check for each in check_file(expected).findings]


def test_a_good_file_has_no_findings_and_its_spans_are_known(good: Expected) -> None:
    verdict = check_file(good)
    assert verdict.findings == []
    assert verdict.points == 110
    assert sorted(verdict.spans) == [("root.sg.d1", 1000, 1049), ("root.sg.d2", 1000, 1009)]


def test_a_missing_file_is_a_finding(good: Expected) -> None:
    assert checks(replace(good, locations=["/nowhere/f"])) == ["present"]


def test_a_changed_byte_is_found_by_its_digest(good: Expected) -> None:
    place = Path(good.locations[1])
    data = bytearray(place.read_bytes())
    data[len(data) // 3] ^= 1
    place.write_bytes(data)
    assert "md5" in checks(good)


@pytest.mark.parametrize("kept", [0, 5, 100, len(FILE) - 1])
def test_a_cut_file_is_found_and_raises_nothing(good: Expected, kept: int) -> None:
    place = Path(good.locations[1])
    place.write_bytes(place.read_bytes()[:kept])
    assert checks(good)[0] == "size"


@pytest.mark.parametrize(
    ("change", "check"),
    [
        ({"points": 111}, "counts"),
        ({"series": 2}, "counts"),
        ({"manifest_points": 109}, "manifest"),
        ({"manifest_series": 4}, "manifest"),
        ({"devices": ["root.sg.d1"]}, "devices"),
        ({"devices": ["root.sg.d1", "root.sg.d2", "root.sg.d3"]}, "devices"),
    ],
)
def test_what_differs_from_catalogue_or_manifest_is_named(
    good: Expected, change: dict[str, object], check: str
) -> None:
    assert checks(replace(good, **change)) == [check]


def test_a_sender_without_a_manifest_is_no_problem(good: Expected) -> None:
    assert checks(replace(good, manifest_series=None, manifest_points=None)) == []


def test_a_directory_in_the_place_of_a_file_is_a_finding(good: Expected, tmp_path: Path) -> None:
    assert checks(replace(good, locations=[str(tmp_path)])) == ["present"]
