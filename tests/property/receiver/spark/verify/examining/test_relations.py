from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("numba")

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from receiver.spark.verify.examining.part_rows import span_schema
from receiver.spark.verify.examining.relations import meetings, overlaps
from tests.support import tiers

SPANS = st.lists(
    st.tuples(st.integers(0, 7), st.sampled_from("abc"), st.integers(0, 30), st.integers(0, 6)),
    max_size=25,
    unique_by=lambda span: span[:2],
)
KINDS = st.lists(st.sampled_from(["sequence", "unsequence", "retired"]), min_size=8, max_size=8)


def table(spans: list[tuple[int, str, int, int]]) -> pa.Table:
    rows = [
        {"file": file, "device": device, "first": first, "last": first + length, "rows": 1}
        for file, device, first, length in spans
    ]
    gap = {"file": 0, "device": "a", "rows": 0, "gap": 3}  # of a file in parts: without a range
    return pa.Table.from_pylist([*rows, gap], schema=span_schema())


@settings(max_examples=tiers.examples(80))
@given(SPANS, KINDS)
def test_an_overlap_is_found_of_every_file_that_begins_before_another_ended(
    spans: list[tuple[int, str, int, int]], kinds: list[str]
) -> None:
    counted = np.array([kind == "sequence" for kind in kinds])
    found = {(each.file, each.device): each for each in overlaps(table(spans), counted)}
    expected = set()
    mine = sorted(
        (device, first, first + length, file)
        for file, device, first, length in spans
        if kinds[file] == "sequence"
    )
    for at, (device, first, _, file) in enumerate(mine):
        before = [other for other in mine[:at] if other[0] == device]
        if any(first <= other[2] for other in before):
            expected.add((file, device))
            each = found[file, device]
            assert each.first == first
            assert each.reach == max(other[2] for other in before)
            assert (device, each.reach, each.other) in {(d, last, f) for d, _, last, f in before}
    assert set(found) == expected


@settings(max_examples=tiers.examples(80))
@given(SPANS, KINDS)
def test_files_of_both_kinds_meet_where_a_device_has_common_time(
    spans: list[tuple[int, str, int, int]], kinds: list[str]
) -> None:
    sequence = np.array([kind == "sequence" for kind in kinds])
    unsequence = np.array([kind == "unsequence" for kind in kinds])
    found = [
        (each.device, each.sequence, each.unsequence)
        for each in meetings(table(spans), sequence, unsequence)
    ]
    expected = [
        (one[1], one[0], other[0])
        for one in spans
        for other in spans
        if kinds[one[0]] == "sequence"
        and kinds[other[0]] == "unsequence"
        and one[1] == other[1]
        and one[2] <= other[2] + other[3]
        and other[2] <= one[2] + one[3]
    ]
    assert sorted(found) == sorted(expected)


def test_nothing_is_no_overlap() -> None:
    none = table([])
    nobody = np.zeros(1, np.bool_)
    assert list(overlaps(none, nobody)) == []
    assert list(meetings(none, nobody, nobody)) == []
