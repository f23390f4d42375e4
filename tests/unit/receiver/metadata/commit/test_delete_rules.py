"""What the rules refuse of what a guard commits, and of the token that forbids deletes."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.errors import RefusedCommitError
from tests.support.metadata import A, B, path, physical, seen

DIGEST, OTHER = "d1" * 16, "d2" * 16
FILES = [physical(path(), 1)]
TOKEN = records.TokenPut("t1", records.SENDER, "ab" * 32, A, [], "", None, allow_deletes=False)
HELD = records.DeletesHeld(DIGEST, A, "root.t", FILES, records=False, reason="too much")


@pytest.fixture
def engine(tmp_path: Path):
    with Engine.open(tmp_path / "schema") as engine:
        engine.commit([seen(), HELD])
        yield engine


REFUSED = {
    "a reader deletes nothing": msgspec.structs.replace(TOKEN, role="reader", sender=None),
    "less than none were deleted": records.DeletesCounted(A, "root.t", -1, 10),
    "of less than none": records.DeletesCounted(A, "root.t", 1, -1),
    "in no group": records.DeletesCounted(A, "", 1, 10),
    "by nobody": records.DeletesCounted(B, "root.t", 1, 10),
    "in a window that has not begun": records.DeletesCounted(A, "root.t", 1, None),
    "a list without a digest": msgspec.structs.replace(HELD, digest="none"),
    "a list of nobody": msgspec.structs.replace(HELD, digest=OTHER, sender=B),
    "a list of nothing": msgspec.structs.replace(HELD, digest=OTHER, files=[]),
    "a list that names a file twice": msgspec.structs.replace(HELD, digest=OTHER, files=FILES * 2),
    "a list of no look": msgspec.structs.replace(HELD, digest=OTHER, look=-1),
    "a list in the place of none": msgspec.structs.replace(HELD, digest=OTHER, replaces="d3" * 16),
    "a list that is held already": HELD,
    "the word on no list": records.DeletesSettled(OTHER, "allow"),
    "the word in no look": records.DeletesSettled(DIGEST, "use", -1),
}


@pytest.mark.parametrize("why", REFUSED)
def test_it_is_refused(engine: Engine, why: str) -> None:
    before = engine.newest_commit
    with pytest.raises(RefusedCommitError):
        engine.commit([REFUSED[why]])
    assert engine.newest_commit == before


def test_a_list_that_is_done_is_there_no_more(engine: Engine) -> None:
    engine.commit([records.DeletesSettled(DIGEST, "done")])
    with pytest.raises(RefusedCommitError):
        engine.commit([records.DeletesSettled(DIGEST, "allow")])
    engine.commit([HELD])


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_token_that_forbids_deletes_does_so_after_a_restart(
    tmp_path: Path, checkpoint: bool
) -> None:
    with Engine.open(tmp_path / "schema") as engine:
        engine.commit([seen(), TOKEN])
        if checkpoint:
            engine.checkpoint()
    with Engine.open(tmp_path / "schema") as engine, engine.reading() as state:
        assert not state.tokens["t1"].allow_deletes
