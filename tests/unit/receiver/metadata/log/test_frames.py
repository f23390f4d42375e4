"""The log: what a bad frame means. Frames are built by hand, so that each case is exact."""

import os

import pytest

from common.errors import DamagedError
from receiver.metadata.log.frames import (
    VERSION,
    LogReader,
    encode_frame,
    encode_log_head,
    encode_payload,
)
from receiver.metadata.model import records
from receiver.metadata.model.errors import NewerLogError
from tests.support.metadata import seen

SALT = 0x0123456789ABCDEF
HEAD = encode_log_head(SALT, 1)
HEAD_SIZE = 32
"""Bytes of a frame before its payload."""


def frame(lsn, *, pad=0, salt=SALT):
    op = records.SenderSeen("aa" * 16, "x" * pad, "dir")
    return encode_frame(salt, lsn, encode_payload([(lsn, records.encode_ops([op]))]))


def read(tmp_path, content):
    """(timestamps, offset where it ends, torn bytes)"""
    file = tmp_path / "log"
    file.write_bytes(content)
    fd = os.open(file, os.O_RDONLY)
    try:
        reader = LogReader(fd, str(file))
        found = [commit.ts for _, commits in reader.frames() for commit in commits]
        return found, reader.good, reader.torn
    finally:
        os.close(fd)


def flip(content, at, bits=0x01):
    return content[:at] + bytes([content[at] ^ bits]) + content[at + 1 :]


ONE, TWO, THREE = frame(1), frame(2), frame(3)
WHOLE = HEAD + ONE + TWO
BEGIN = len(HEAD + ONE)


def test_frames_come_back_with_their_commits(tmp_path):
    assert read(tmp_path, WHOLE) == ([1, 2], len(WHOLE), 0)
    op = seen()
    payload = encode_payload([(5, records.encode_ops([op, op])), (6, records.encode_ops([op]))])
    file = tmp_path / "many"
    file.write_bytes(HEAD + encode_frame(SALT, 1, payload))
    fd = os.open(file, os.O_RDONLY)
    [(at, commits)] = list(LogReader(fd, "x").frames())
    os.close(fd)
    assert at == len(HEAD)
    assert commits == [records.Commit(5, [op, op]), records.Commit(6, [op])]


def test_a_frame_that_is_short_is_cut_off(tmp_path):
    for cut in range(1, len(TWO) + 1):
        assert read(tmp_path, WHOLE[:-cut]) == ([1], BEGIN, len(TWO) - cut)


def test_a_tail_of_zeros_is_cut_off(tmp_path):
    for kept in range(len(TWO) - 4):
        content = HEAD + ONE + TWO[:kept] + bytes(len(TWO) - kept)
        assert read(tmp_path, content) == ([1], BEGIN, len(TWO)), kept
        assert read(tmp_path, content + bytes(5000))[:2] == ([1], BEGIN), kept


@pytest.mark.parametrize("kept", range(0, len(TWO) - 4, 7))
def test_a_tail_of_garbage_is_cut_off(tmp_path, kept):
    garbage = bytes((37 * n + kept) % 251 for n in range(len(TWO) - kept))
    assert read(tmp_path, HEAD + ONE + TWO[:kept] + garbage)[:2] == ([1], BEGIN)


def test_frames_of_an_older_log_in_the_tail_are_garbage(tmp_path):
    stale = frame(2, salt=SALT + 1) + frame(3, salt=SALT + 1)
    torn = HEAD + ONE + TWO[:20]
    assert read(tmp_path, torn + stale[20:-4])[:2] == ([1], BEGIN)


@pytest.mark.parametrize("sector", [0, 1, 2])
def test_a_frame_with_a_sector_that_was_never_written_is_cut_off(tmp_path, sector):
    """Sectors of one write reach the disk in any order: the mark may be there before the middle."""
    big = frame(2, pad=2500)
    begin = (BEGIN // 512 + 1 + sector) * 512
    content = bytearray(HEAD + ONE + big)
    content[begin : begin + 512] = bytes(512)
    assert read(tmp_path, bytes(content)) == ([1], BEGIN, len(big))


def test_a_first_sector_that_was_never_written_is_cut_off(tmp_path):
    big = frame(2, pad=1500)
    content = bytearray(HEAD + ONE + big)
    content[BEGIN : (BEGIN // 512 + 1) * 512] = bytes((BEGIN // 512 + 1) * 512 - BEGIN)
    assert read(tmp_path, bytes(content)) == ([1], BEGIN, len(big))


@pytest.mark.parametrize("bits", [0x01, 0x80, 0xFF])
def test_a_last_frame_that_decayed_is_never_dropped_silently(tmp_path, bits):
    """It is whole, so it was flushed, and somebody may have been told."""
    for at in range(len(TWO) - 4):
        with pytest.raises(DamagedError) as caught:
            read(tmp_path, flip(WHOLE, BEGIN + at, bits))
        assert caught.value.extra == {"file": str(tmp_path / "log"), "offset": BEGIN}
        assert str(tmp_path / "log") in caught.value.message
        assert f"offset {BEGIN}" in caught.value.message


@pytest.mark.parametrize("at", range(len(TWO) - 4, len(TWO)))
def test_a_decayed_mark_does_no_harm(tmp_path, at):
    assert read(tmp_path, flip(WHOLE, BEGIN + at)) == ([1, 2], len(WHOLE), 0)
    assert read(tmp_path, flip(WHOLE, BEGIN + at) + THREE)[0] == [1, 2, 3]


def test_damage_in_the_middle_is_refused(tmp_path):
    for at in range(len(ONE) - 4):
        with pytest.raises(DamagedError, match=f"offset {len(HEAD)}: "):
            read(tmp_path, flip(WHOLE, len(HEAD) + at))


def test_damage_before_a_torn_tail_is_refused(tmp_path):
    """The torn frame was begun, so the one before it had been flushed."""
    for torn in range(HEAD_SIZE, len(TWO)):
        with pytest.raises(DamagedError, match=f"offset {len(HEAD)}: "):
            read(tmp_path, flip(HEAD + ONE + TWO[:torn], len(HEAD) + 50))
    for torn in range(HEAD_SIZE):
        with pytest.raises(DamagedError, match=f"offset {len(HEAD)}: "):
            read(tmp_path, flip(HEAD + ONE + TWO[:torn], len(HEAD) + 50))
        with pytest.raises(DamagedError, match=f"offset {len(HEAD)}: "):
            read(tmp_path, flip(HEAD + ONE + TWO[:torn], len(HEAD) + 5))


def test_a_zeroed_sector_before_sound_frames_is_damage(tmp_path):
    big = frame(2, pad=3000)
    content = bytearray(HEAD + ONE + big + THREE)
    content[1024:1536] = bytes(512)
    with pytest.raises(DamagedError, match=f"one at {len(HEAD + ONE + big)} follows"):
        read(tmp_path, bytes(content))


def test_a_missing_frame_is_damage(tmp_path):
    with pytest.raises(DamagedError, match="begins with LSN 3, expected 2"):
        read(tmp_path, HEAD + ONE + THREE)
    with pytest.raises(DamagedError, match="begins with LSN 1, expected 2"):
        read(tmp_path, HEAD + ONE + ONE)


def test_a_huge_length_with_a_right_check_allocates_nothing(tmp_path):
    """A length is believed after its own check, and never beyond the end of the file."""
    import struct

    import xxhash

    head = struct.pack("<4sIQQ", b"TSFm", 0xFFFFFFFF, 2, 0)
    head += struct.pack("<Q", xxhash.xxh3_64_intdigest(head, seed=SALT))
    assert read(tmp_path, HEAD + ONE + head + b"x" * 100) == ([1], BEGIN, 132)


def test_a_sound_frame_of_unknown_operations_is_refused_not_dropped(tmp_path):
    import msgspec

    payload = encode_payload([(2, msgspec.msgpack.encode([[99, "what?"]]))])
    with pytest.raises(DamagedError, match="cannot be read"):
        read(tmp_path, HEAD + ONE + encode_frame(SALT, 2, payload))


def test_a_later_program_may_add_fields_at_the_end(tmp_path):
    import msgspec

    payload = encode_payload([(2, msgspec.msgpack.encode([[2, "aa" * 16, "l", "d", "more", 7]]))])
    assert read(tmp_path, HEAD + ONE + encode_frame(SALT, 2, payload))[0] == [1, 2]


def test_a_newer_version_is_refused_with_its_number(tmp_path):
    with pytest.raises(NewerLogError, match=rf"log has version 7, .* up to {VERSION}"):
        read(tmp_path, encode_log_head(SALT, 1, version=7) + ONE)


def test_a_damaged_head_is_named(tmp_path):
    for at in range(len(HEAD)):
        with pytest.raises((DamagedError, NewerLogError), match="log"):
            read(tmp_path, flip(WHOLE, at))


def test_a_log_shorter_than_its_head_is_damaged(tmp_path):
    for size in range(len(HEAD)):
        with pytest.raises(DamagedError, match="no log of the metadata engine"):
            read(tmp_path, WHOLE[:size])


def test_the_search_finds_a_frame_across_window_borders(tmp_path):
    """The frame behind the damage may begin anywhere, also astride two windows of the search."""
    window = 1 << 20
    for shift in (-3, -2, -1, 0, 1):
        pad = window + shift - len(frame(2, pad=70_000)) + 70_000
        big = frame(2, pad=pad)
        with pytest.raises(DamagedError, match=f"one at {BEGIN + len(big)} follows"):
            read(tmp_path, flip(HEAD + ONE + big + THREE, BEGIN + 100))
