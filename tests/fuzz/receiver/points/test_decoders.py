"""Damaged pages; a million of them by `scripts/fuzz_decoders.py`."""

from __future__ import annotations

import pytest

from tests.support import tiers
from tests.support.decoder_fuzz import attack
from tests.support.encoders.cases import CASES, Case


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_damaged_page_is_refused_or_gives_as_many_values_as_asked(case: Case) -> None:
    outcomes = attack(case, tiers.examples(400), seed=tiers.seed())
    assert outcomes.kinds["decoded"] < outcomes.inputs  # the damage is real
