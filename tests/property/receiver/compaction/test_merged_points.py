"""What a merge of any files writes is what a dictionary says that readers get of them.

`scripts/merge_sweep.py` tries as many cases as one likes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import tiers
from tests.support.merge_judge import merged_case


@pytest.mark.slow
def test_a_merge_writes_what_readers_get_of_its_files(tmp_path: Path) -> None:
    for seed in range(tiers.examples(60)):
        try:
            merged_case(seed, tmp_path / str(seed))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
