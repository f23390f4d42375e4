"""Lives of a centre with an object store: whatever is where, merged files change no answer."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from common.wire import Propagate
from tests.support import tiers
from tests.support.stored_life import StoredLife

LIVES = 5
STEPS = 30
INTERVAL = 20
KINDS = ("tree", "table", "partitions")
MODES = tuple(Propagate)
MET = {
    "merged", "finals", "evicted inputs", "evicted merged files", "expired", "expired merged files",
    "restores of the store", "backups restored", "reads", "reads of the past",
}  # fmt: skip
"""What many lives have in them."""


def lived(kind: str, name: str, root: Path, mode: Propagate) -> Counter[str]:
    """Live; returns what was met.

    Args:
        kind: of data.
        name: of the life, which is made of it.
        root: for what it has on disk.
        mode: what the word of the edge takes away.
    """
    chance = random.Random(name)
    life = StoredLife(
        chance, root, table=kind == "table", interval=INTERVAL if kind == "partitions" else 0
    )
    life.site.mode = mode
    steps = [
        life.files, life.files, life.files, life.files, life.ends, life.deletion, life.loss,
        life.proofs, life.merge, life.merge, life.by_hand, life.by_hand, life.let_go, life.fade,
        life.fade, life.final, life.drop, life.restart, life.evict, life.evict, life.fetch,
        life.burn, life.put_aside, life.turn_back, life.bite, life.bite, life.relent,
        life.add_column, life.widen, life.look_back, life.look_back, life.look_back,
    ]  # fmt: skip
    told: list[str] = []
    try:
        for _ in range(STEPS):
            step = chance.choice(steps)
            told.append(step.__name__)
            step()
            life.checked()
            life.remember()
        life.read()
    except BaseException as error:
        error.add_note(f"{kind}, {mode}, {name}: {told}")
        raise
    finally:
        life.close()
    return Counter(life.seen, merged=life.merged, finals=life.finals)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_merged_files_change_no_answer_wherever_they_are_and_whatever_is_past(
    kind: str, tmp_path: Path
) -> None:
    met: Counter[str] = Counter()
    for number in range(tiers.examples(LIVES)):
        name = f"{tiers.seed()}-{number}"
        mode = MODES[(number + KINDS.index(kind)) % len(MODES)]
        met += lived(kind, name, tmp_path / name, mode)
    assert met["merged"]
    if tiers.is_long():
        assert met.keys() >= MET
