"""Any bytes as a log, or as a journal: a prefix of what was written, or an error with a name."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from common.errors import DamagedError
from receiver.metadata.log.frames import LogReader, encode_frame, encode_log_head, encode_payload
from receiver.metadata.log.journal import parse_journal
from receiver.metadata.log.replay import Replay
from receiver.metadata.model import records
from receiver.metadata.model.errors import NewerLogError
from tests.support import tiers
from tests.support.metadata import load, path, plain, seen

SALT = 99
OPS = [
    [records.EngineMade("ee" * 16)],
    [seen()],
    [load()],
    [load(path("2-2-0"), 2, devices={f"root.t.d{n}": (n, n + 1) for n in range(40)})],
    [records.FileRetired(load().physical)],
]


@cache
def written():
    """(content, states after each frame)"""
    content, states, replay = encode_log_head(SALT, 1), [], Replay()
    for number, ops in enumerate(OPS, 1):
        content += encode_frame(SALT, number, encode_payload([(number, records.encode_ops(ops))]))
        replay.state.apply(records.Commit(number, ops))
        states.append(plain(replay.state))
    return content, states


def replayed(content):
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        replay = Replay()
        replay.run(LogReader(file.fileno(), "the log"))
        return plain(replay.state)


@settings(max_examples=tiers.examples(400))
@given(st.binary(max_size=400))
@example(b"")
def test_bytes_that_are_no_log_are_refused(content):
    try:
        replayed(content)
    except (DamagedError, NewerLogError):
        return
    raise AssertionError("taken for a log")


@settings(max_examples=tiers.examples(600))
@given(data=st.data())
def test_a_log_with_something_cut_put_in_or_overwritten_never_gives_a_wrong_state(data):
    content, states = written()
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content)))
        size = data.draw(st.sampled_from([0, 1, 4, 8, 32, 512, 4096]))
        patch = data.draw(st.binary(max_size=40) | st.just(bytes(512)) | st.just(content[:200]))
        content = content[:at] + patch + content[at + size :]
    with suppress(DamagedError, NewerLogError):
        assert replayed(content) in states


@settings(max_examples=tiers.examples(400))
@given(st.binary(max_size=300))
def test_a_journal_of_any_bytes_is_read_to_its_last_sound_line(tail):
    title = b"# tsferry device owners, version 1: time, commit, device, owner, why\n"
    line = b'2026-01-31T23:59:59.123+00:00 7 "root.t.d1" aa first load\n'
    owners, good = parse_journal(title + line + tail)
    assert good >= len(title + line)
    assert "root.t.d1" in owners or good > len(title + line)
    assert parse_journal(tail)[1] <= len(tail)


def test_a_log_is_read_from_any_descriptor_position(tmp_path: Path):
    content, states = written()
    file = tmp_path / "log"
    file.write_bytes(content)
    fd = os.open(file, os.O_RDONLY)
    os.lseek(fd, 77, os.SEEK_SET)
    replay = Replay()
    replay.run(LogReader(fd, "x"))
    os.close(fd)
    assert plain(replay.state) == states[-1]
