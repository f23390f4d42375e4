"""Is it closed? Every answer, and what it is told from."""

from __future__ import annotations

import os
import struct

import pytest

from common.tsfile import Status, read_status, read_tail
from tests.support.tsfile_bytes import MAGIC, SAMPLE, build

V3, V4 = build(SAMPLE, version=3), build(SAMPLE, version=4)


def with_metadata_size(size):
    return V4[:-10] + struct.pack(">i", size) + MAGIC


@pytest.mark.parametrize(
    ("content", "status", "version", "reason"),
    [
        (V3, Status.COMPLETE, 3, "magic at both ends"),
        (V4, Status.COMPLETE, 4, "magic at both ends"),
        (b"", Status.EMPTY, None, "no bytes"),
        (b"T", Status.UNSEALED, None, "1 bytes of the magic"),
        (b"TsFil", Status.UNSEALED, None, "5 bytes of the magic"),
        (b"TsFile", Status.UNSEALED, None, "no magic at the end"),
        (b"TsFile\x03", Status.UNSEALED, 3, "no magic at the end"),
        (b"TsFile\x04\x00", Status.UNSEALED, 4, "no magic at the end"),
        (V4[:-1], Status.UNSEALED, 4, "no magic at the end"),
        (V4[:40] + bytes(4000), Status.UNSEALED, 4, "no magic at the end"),
        (b"TsFile\x04TsFile", Status.CORRUPT, 4, "metadata size"),
        (with_metadata_size(0), Status.CORRUPT, 4, "metadata size 0 at offset"),
        (with_metadata_size(-1), Status.CORRUPT, 4, "metadata size -1 at offset"),
        (with_metadata_size(991231), Status.CORRUPT, 4, "metadata size 991231 at offset"),
        (with_metadata_size(2**31 - 1), Status.CORRUPT, 4, "larger than the file has room for"),
        (with_metadata_size(len(V4) - 17), Status.CORRUPT, 4, "larger than the file has room"),
        (MAGIC + b"\x05" + V4[7:], Status.CORRUPT, None, "version 5 at offset 6"),
        (MAGIC + b"\x05" + V4[7:-1], Status.NOT_A_TSFILE, None, "version 5 at offset 6"),
        (b"TsFile000001" + bytes(50), Status.LEGACY, None, "version '000001'"),
        (b"TsFile000002" + bytes(50) + MAGIC, Status.LEGACY, None, "version '000002'"),
        (b"TsFilev0.7.0" + bytes(50), Status.LEGACY, None, "version 'v0.7.0'"),
        (b"TsFilev", Status.LEGACY, None, "version 'v'"),
        (b"PAR1" + bytes(50), Status.NOT_A_TSFILE, None, "begins with b'PAR1"),
        (bytes(5000), Status.NOT_A_TSFILE, None, "begins with"),
        (b"X", Status.NOT_A_TSFILE, None, "begins with b'X'"),
        (b"xxxxxx" + V4[6:], Status.NOT_A_TSFILE, None, "begins with b'xxxxxx'"),
    ],
)
def test_a_file_is_called_what_it_is_and_the_reason_says_why(content, status, version, reason):
    verdict = read_status(content)
    assert (verdict.status, verdict.version, verdict.size) == (status, version, len(content))
    assert reason in verdict.reason
    assert verdict.complete == (status is Status.COMPLETE)
    tail = read_tail(content)
    assert (tail.status, tail.size) == (status, len(content))


def test_status_values_are_the_words_that_are_shown():
    assert [str(status) for status in Status] == [
        "complete", "unsealed", "empty", "legacy", "corrupt", "not_a_tsfile",
    ]  # fmt: skip


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_bytes_of_any_kind_are_read(wrap):
    assert read_status(wrap(V4)).complete
    assert read_tail(wrap(V4)).series_count == 3


def test_a_descriptor_is_read_without_moving_it_and_stays_open(tmp_path):
    path = tmp_path / "a.tsfile"
    path.write_bytes(V4)
    fd = os.open(path, os.O_RDONLY)
    try:
        os.lseek(fd, 11, os.SEEK_SET)
        assert read_status(fd).complete
        assert read_tail(fd, chunk_headers=True).point_count == 112
        assert os.lseek(fd, 0, os.SEEK_CUR) == 11
    finally:
        os.close(fd)
    assert read_status(path) == read_status(str(path)) == read_status(V4)


@pytest.mark.parametrize("read", [read_status, read_tail])
def test_a_file_that_cannot_be_read_is_an_os_error_and_no_verdict(read, tmp_path):
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "absent.tsfile")
    with pytest.raises(IsADirectoryError):
        read(tmp_path)


@pytest.mark.parametrize("version", [3, 4])
def test_every_truncation_of_a_good_file_is_unsealed(version):
    content = build(SAMPLE, version=version, chunks=2)
    for length in range(1, len(content)):
        assert read_status(content[:length]).status is Status.UNSEALED, length
    assert read_status(content).complete


def test_a_truncation_that_ends_in_the_magic_by_chance_is_never_called_complete():
    content = build({"root.sg.d1": {"s1": [(t, "TsFile") for t in range(20)]}})
    ends = [at + 6 for at in range(7, len(content) - 6) if content[at : at + 6] == MAGIC]
    assert len(ends) > 20
    for end in ends:
        assert read_tail(content[:end]).status is Status.CORRUPT
