"""Whatever comes, goes, is merged, copied and restored: what an operator deleted stays deleted."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from tests.support import tiers
from tests.support.deletion_life import DeletionLife

LIVES = 6
STEPS = 30


@pytest.mark.slow
def test_what_an_operator_deleted_is_not_seen_again_and_what_nobody_deleted_is_not_refused(
    tmp_path: Path,
) -> None:
    seen: Counter[str] = Counter()
    for number in range(tiers.examples(LIVES)):
        name = f"{tiers.seed()}-{number}"
        life = DeletionLife(random.Random(name), tmp_path / name)
        try:
            life.run(STEPS)
        finally:
            life.close()
        seen.update(life.seen)
    assert min(seen[each] for each in ("deleted", "expired", "loaded", "merged")) > 0
