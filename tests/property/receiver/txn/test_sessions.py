"""Histories of blocks, sessions, plain commits, ended leases and restarts have no anomaly.

`scripts/txn_sweep.py` plays as many as one likes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from receiver.metadata.commit.guards import UnchangedGuard
from receiver.metadata.commit.recent_commits import RecentCommits
from tests.support import tiers
from tests.support.txn_sessions import SessionCentre, played_history

MET = {
    "answers lost", "batches", "blocks", "commits lost on their way", "leases over",
    "over by a restart", "plain commits", "sessions over HTTP", "transaction-ended",
    "write-conflict",
}  # fmt: skip


@pytest.fixture
def centre(tmp_path: Path) -> Iterator[SessionCentre]:
    centre = SessionCentre(tmp_path)
    yield centre
    centre.close()


def played(centre: SessionCentre, histories: int) -> list[str]:
    said: list[str] = []
    for number in range(histories):
        rng = Random(f"{tiers.seed()}-{number}")
        said += played_history(centre, number, rng, 25, restarts=number % 20 == 5)
    return said


@pytest.mark.slow
def test_however_a_transaction_is_begun_and_ends_its_history_has_no_anomaly(
    centre: SessionCentre,
) -> None:
    assert played(centre, tiers.examples(60)) == []
    if tiers.is_long():
        assert centre.met.keys() >= MET


@pytest.mark.slow
def test_such_histories_see_lost_updates(
    centre: SessionCentre, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RecentCommits, "leave_alone", lambda *_: True)
    monkeypatch.setattr(UnchangedGuard, "holds", lambda *_: True)
    assert any("lost update" in each for each in played(centre, 20))
