"""Tables of series made of damaged files, and damaged tables: an error of ours, or a table."""

from __future__ import annotations

import tracemalloc

from common.tsfile import Corrupt, read_tail
from common.tsfile.proof import SeriesTable
from common.tsfile.proving import series_proofs, series_statistics
from tests.support.mutate import mutants
from tests.support.tsfile_bytes import SAMPLE, build

FILES = [
    build(SAMPLE, chunks=3, page_points=5),
    build(SAMPLE, version=3),
    build({"root.a.d": {"s1": [(1, 1)], "s2": [(2, 2)]}}, aligned=["root.a.d"]),
]


def test_a_damaged_file_gives_an_error_or_a_table_of_what_is_there():
    made = 0
    for data in mutants(FILES, 3000):
        tail = read_tail(data)
        if not tail.complete:
            continue
        statistics = series_statistics(tail)
        try:
            table = series_proofs(data, tail)
        except Corrupt:
            continue
        made += 1
        assert table.same_statistics(statistics)
        assert SeriesTable.decode(table.encode()) == table
    assert made > 100


def test_a_damaged_table_gives_an_error_or_another_table_in_bounded_memory():
    tables = [series_proofs(each, read_tail(each)) for each in FILES]
    seeds = [each.encode() for each in tables]
    packed = [each.pack() for each in tables]
    tracemalloc.start()
    for data in mutants(seeds, 4000):
        try:
            table = SeriesTable.decode(data)
        except Corrupt:
            continue
        assert table.encode() == data
        for before in tables:
            list(before.differences(table))
    for data in mutants(packed, 2000):
        try:
            SeriesTable.unpack(data, limit=1 << 20)
        except Corrupt:
            continue
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20
