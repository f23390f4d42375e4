"""What nodes report, in numbers that are counted once for each change."""

from __future__ import annotations

from receiver.heartbeats import reported_columns
from receiver.heartbeats.reported_columns import ReportedColumns
from tests.support.heard_nodes import tablet, tablet_id


def test_numbers_follow_every_change_and_are_counted_once_for_each(monkeypatch):
    counts = []
    real = reported_columns._counted
    monkeypatch.setattr(reported_columns, "_counted", lambda rest: counts.append(1) or real(rest))
    held = ReportedColumns.of([tablet(1, files=2, size=5), tablet(2, files=1, size=7)], [True] * 2)
    assert (held.totals.files, held.totals.size, held.totals.unknown) == (3, 12, 0)
    assert len(counts) == 1
    held.put(ReportedColumns.of([tablet(2, files=9, size=1, state="damaged")], [True]))
    assert (held.totals.files, held.totals.size) == (11, 6), "one stands otherwise"
    assert held.totals.states["damaged"] == 1
    held.put(ReportedColumns.of([tablet(3, files=1)], [False]))
    assert (held.totals.files, held.totals.unknown) == (12, 1)
    held.drop([tablet_id(1)])
    assert held.totals.files == 10
    held.drop([tablet_id(1)])
    assert (held.totals.files, len(counts)) == (10, 4), "what changes nothing is not counted anew"
