import base64
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import ProtocolError
from receiver.web.handlers import tus_headers as tus


@pytest.mark.parametrize(("text", "value"), [("0", 0), ("007", 7), ("9" * 18, 10**18 - 1)])
def test_numbers(text, value):
    assert tus.number(text, "Upload-Offset") == value


@pytest.mark.parametrize(
    "text",
    [None, "", " 1", "-1", "+1", "1.5", "0x10", "1_000", "9" * 5000, str(2**63), "١", "1\n"],
)
def test_what_is_no_offset_is_refused(text):
    with pytest.raises(ProtocolError, match="Upload-Offset"):
        tus.number(text, "Upload-Offset")


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


KEYS = st.text("abcXYZ019-_.", min_size=1, max_size=10)


@given(st.dictionaries(KEYS, st.text(st.characters(codec="utf-8"), max_size=30), max_size=10))
def test_metadata_reads_back_what_was_sent(pairs):
    text = ",".join(f"{key} {b64(value.encode())}" for key, value in pairs.items())
    assert tus.metadata(text) == pairs


def test_metadata_without_values_and_with_spaces():
    assert tus.metadata("a, b YQ== ,c ") == {"a": "", "b": "a", "c": ""}
    assert tus.metadata(None) == tus.metadata(" ") == {}


@pytest.mark.parametrize(
    "text",
    [
        ",",
        "a YQ==,",
        "a YQ==,a Yg==",
        "a %%%",
        "a YQ",
        "a YQ==extra",
        "a /w==",
        "a Y Q==",
        "ä YQ==",
        ",".join(f"k{n}" for n in range(33)),
    ],
)
def test_broken_metadata_is_refused(text):
    with pytest.raises(ProtocolError, match="Upload-Metadata"):
        tus.metadata(text)


@given(st.text(max_size=60))
def test_metadata_is_read_or_refused(text):
    with contextlib.suppress(ProtocolError):
        tus.metadata(text)


def test_checksums():
    assert tus.checksum(None) is None
    assert tus.checksum(f"sha1 {b64(b's' * 20)}") == ("sha1", b"s" * 20)
    assert tus.checksum(f"xxh3_128 {b64(b'x' * 16)}") == ("xxh3_128", b"x" * 16)


@pytest.mark.parametrize(
    "text", ["", "crc32 AAAA", "md5", "md5 x", f"md5 {b64(b'1' * 15)}", "MD5 AA"]
)
def test_broken_checksums_are_refused(text):
    with pytest.raises(ProtocolError, match="Upload-Checksum"):
        tus.checksum(text)


def test_repr_digest_gives_the_md5_among_others():
    digest = bytes(range(16))
    text = f"sha-256=:{b64(b's' * 32)}:, md5=:{b64(digest)}:"
    assert tus.repr_md5(text) == digest.hex()
    assert tus.repr_md5(f"sha-256=:{b64(b's' * 32)}:") is None
    assert tus.repr_md5(None) is None


@pytest.mark.parametrize("text", ["md5", "md5=abc", "md5=:abc:", f"md5=:{b64(b'1' * 15)}:", ","])
def test_broken_repr_digests_are_refused(text):
    with pytest.raises(ProtocolError, match="Repr-Digest"):
        tus.repr_md5(text)


def test_expiry_is_an_http_date():
    assert tus.expires(0.0) == "Thu, 01 Jan 1970 00:00:00 GMT"
