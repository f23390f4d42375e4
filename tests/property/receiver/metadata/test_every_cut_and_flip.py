"""A log of real commits, cut at every byte, and with every byte changed."""

from __future__ import annotations

import os

import pytest

from common.errors import DamagedError
from common.wire import Result
from receiver.metadata.engine import Engine
from receiver.metadata.log.frames import LogReader
from receiver.metadata.log.replay import Replay
from receiver.metadata.model import records
from receiver.metadata.model.errors import NewerLogError
from tests.support import tiers
from tests.support.metadata import TASK, A, B, load, log_file, path, physical, plain, seen, token

COMMITS = [
    [seen(), seen(B), token()],
    [
        load(devices={"root.t.d1": (1, 9), "root.t.dé": (2, 3)}),
        records.EpochSet(A, "1.x", None, None, True),
    ],
    [records.TaskDone(A, TASK, [records.FileOutcome(path(), Result.LOADED)])],
    [
        records.FileDeleted(physical(path(), 1), "replaced"),
        load(tag=2, content="new"),
        records.QuarantinePut(B, path(), "00", 1, True, "why", device="root.t.d1"),
    ],
    [records.FileRetired(physical(path(), 2)), records.OwnerSet("root.t.d1", B, "moved")],
]


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    """(bytes of the log, [(end of the frame, state after it)])"""
    home = tmp_path_factory.mktemp("history")
    with Engine.open(home) as engine:
        steps = []
        for ops in [None, *COMMITS]:
            if ops:
                engine.commit(ops)
            with engine.reading() as state:
                steps.append((log_file(home).stat().st_size, plain(state)))
    return log_file(home).read_bytes(), steps


@pytest.fixture
def replayed(tmp_path):
    file = tmp_path / "log"

    def replayed(content):
        file.write_bytes(content)
        fd = os.open(file, os.O_RDONLY)
        try:
            reader, replay = LogReader(fd, str(file)), Replay()
            replay.run(reader)
            return plain(replay.state), reader.good
        finally:
            os.close(fd)

    return replayed


def test_every_truncation_point_gives_a_prefix_of_the_commits(history, replayed):
    content, steps = history
    first = steps[0][0]
    for size in tiers.part(range(len(content) + 1)):
        if size < first:
            with pytest.raises(DamagedError):
                replayed(content[:size])
            continue
        end, expected = [step for step in steps if step[0] <= size][-1]
        assert replayed(content[:size]) == (expected, end), size


def test_every_truncation_point_with_zeros_behind_gives_a_prefix_of_the_commits(history, replayed):
    content, steps = history
    for size in tiers.part(range(steps[0][0], len(content))):
        found, good = replayed(content[:size] + bytes(600))
        # The mark alone missing: the commit is whole, and counts.
        assert (found, good) in [(state, end) for end, state in steps if end - 4 <= size], size
        assert good >= max(end for end, _ in steps if end <= size)


@pytest.mark.parametrize("bits", tiers.sample([0x01, 0x80, 0xFF], 1))
def test_every_changed_byte_gives_a_named_error_and_never_a_wrong_state(history, replayed, bits):
    content, steps = history
    ends = [end for end, _ in steps]
    harmless = 0
    for at in range(len(content)):
        changed = bytearray(content)
        changed[at] ^= bits
        try:
            found, good = replayed(bytes(changed))
        except (DamagedError, NewerLogError):
            continue
        assert (found, good) == (steps[-1][1], ends[-1]), f"a wrong state from byte {at}"
        assert any(end - 4 <= at < end for end in ends), f"byte {at} is no mark"
        harmless += 1
    assert harmless == 4 * len(ends)


def test_every_zeroed_sector_but_the_last_frame_s_gives_a_named_error(history, replayed):
    content, steps = history
    last = steps[-2][0]
    for at in range(0, len(content), 512):
        changed = bytearray(content)
        changed[at : at + 512] = bytes(len(changed[at : at + 512]))
        if at + 512 <= last:
            with pytest.raises(DamagedError):
                replayed(bytes(changed))
        elif at >= last:
            assert replayed(bytes(changed)) == (steps[-2][1], last)


def test_the_engine_itself_cuts_or_refuses_at_every_byte_of_the_last_frames(history, tmp_path):
    content, steps = history
    for size in tiers.part(range(steps[-3][0], len(content), 13), 2):
        home = tmp_path / f"{size}"
        home.mkdir()
        log_file(home).write_bytes(content[:size])
        for _ in range(2):  # a recovery that is run twice gives the same
            with Engine.open(home) as engine, engine.reading() as state:
                assert plain(state) == [state for end, state in steps if end <= size][-1]
        with Engine.open(home) as engine:
            engine.commit([seen(A, "after")])
        with Engine.open(home) as engine, engine.reading() as state:
            assert state.senders[A].label == "after"
