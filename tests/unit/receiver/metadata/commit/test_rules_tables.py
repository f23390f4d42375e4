"""Of tables a commit takes, and a batch, what could also be said one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest

from common.errors import TsferryError
from receiver.metadata.commit.draft import examine
from receiver.metadata.commit.touched import Touched
from receiver.metadata.model import records
from receiver.metadata.state.state import State
from tests.support.metadata import A, digest, load, path, seen

THERE, GONE, NODE = "a0" * 16, "a1" * 16, "d1" * 16
EMPTY, DROPPED, BY_HAND, WITH_GONE = (f"b{each}" * 16 for each in range(4))
HISTORY: list[list[records.Op]] = [
    [records.EngineMade("ee" * 16), seen(), records.NodeRegistered(NODE, "remote", "n", "h", 1)],
    [
        records.TableMade(THERE, "root.t"),
        records.TabletMade(EMPTY, THERE, 1, 2),
        records.TabletMade(DROPPED, THERE, 2, 3),
        records.TabletMade(BY_HAND, THERE, 3, 4, by_hand=True),
        records.TabletMade("b4" * 16, THERE, 0, 1),
        records.TableMade(GONE, "root.u"),
        records.TabletMade(WITH_GONE, GONE, 1, 2),
    ],
    [load()],
    [records.TabletPlaced(EMPTY, 1, [NODE], NODE)],
    [records.TabletDropped(DROPPED), records.TabletDropped(WITH_GONE)],
    [records.TableDropped(GONE)],
]
OPS: list[records.Op] = [
    records.TableMade("c0" * 16, "root.u"),
    records.TableMade("c1" * 16, "root.u"),
    records.TableMade("c0" * 16, "root.v"),
    records.TableDropped(THERE),
    records.TableForgotten(GONE),
    records.TableForgotten(THERE),
    records.TableReplicasSet(THERE, 2),
    records.TableTtlSet(THERE, 5),
    records.TabletMade("c2" * 16, THERE, 2, 3),
    records.TabletMade("c3" * 16, THERE, 2, 4),
    records.TabletMade("c2" * 16, THERE, 9, 10),
    records.TabletDropped(EMPTY),
    records.TabletDropped(BY_HAND),
    records.TabletForgotten(DROPPED),
    records.TabletForgotten(WITH_GONE),
    records.TabletForgotten(EMPTY),
    records.TabletPlaced(EMPTY, 2, [NODE], NODE),
    records.TabletPlaced(BY_HAND, 1, [NODE], NODE),
    records.TabletRunning(EMPTY, 1),
    records.NodeForgotten(NODE),
    records.CopyDoubted(NODE, EMPTY, load().physical),
    records.CopyDoubted(NODE, EMPTY, load(path("2-2-0", part=1), 2).physical),
    records.CopyDoubted(NODE, EMPTY, load().physical, doubted=False),
    load(path("2-2-0", part=1), 2),
]
COMPACTED = [
    records.FilesCompacted(
        each,
        len(HISTORY),
        [load().physical],
        [
            records.CompactionOutput(
                f"sequence/root.t/0/0/merged-{each}-0.tsfile",
                10,
                digest("out"),
                4,
                [records.DeviceRange("root.t.d1", 1, 9)],
                1,
                9,
                1,
                10,
            )
        ],
    )
    for each in (7, 8)
]


def state_of(*commits: Sequence[records.Op]) -> State:
    state = State()
    for ts, ops in enumerate([*HISTORY, *commits], 1):
        state.apply(records.Commit(ts, ops))
    return state


def touched(state: State, *ops: records.Op) -> Touched | None:
    try:
        return examine(state, ops)
    except TsferryError:
        return None


FRESH = state_of()


@pytest.mark.parametrize("first", OPS, ids=lambda op: type(op).__name__)
def test_what_one_commit_says_could_be_said_by_two(first: records.Op) -> None:
    for second in OPS:
        if touched(FRESH, first, second) is None:
            continue
        assert touched(FRESH, first) is not None
        assert touched(state_of([first]), second) is not None, second
        state_of([first, second])


def test_what_one_batch_takes_could_be_committed_one_after_the_other() -> None:
    together = 0
    for first, second in product(OPS, OPS):
        one, other = touched(FRESH, first), touched(FRESH, second)
        if one is None or other is None:
            continue
        batch = Touched()
        batch.add(one)
        if batch.allows(other):
            together += 1
            assert touched(state_of([first]), second) is not None, (first, second)
            state_of([first], [second])
    assert together > len(OPS)


def test_one_commit_has_one_compaction() -> None:
    assert all(touched(FRESH, each) is not None for each in COMPACTED)
    assert touched(FRESH, *COMPACTED) is None
    assert FRESH.senders[A].uuid == A
