import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.config.units import (
    format_duration,
    format_rate,
    format_size,
    parse_duration,
    parse_rate,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (4096, 4096),
        ("4096", 4096),
        ("4096B", 4096),
        ("10MiB", 10 * 2**20),
        ("4 MiB", 4 * 2**20),
        (" 4mib ", 4 * 2**20),
        ("1.5GiB", 3 * 2**29),
        ("2TiB", 2**41),
        ("10M", 10 * 2**20),
        ("10MB", 10_000_000),
        ("1k", 1024),
        ("1KB", 1000),
        (0, 0),
    ],
)
def test_a_size_is_read_as_rsync_reads_it(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text",
    [
        *("", "MiB", "-1", "1e3", "0x10", "4 Mi B", "4MiB/s", "0.0001KiB", "١٢", "nan", "9" * 5000),
        *(-1, 1.5, True, None, [], 2**63, 10**4000, "9223372036854775808", "8388608TiB"),
    ],
)
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ValueError):  # noqa: PT011 - the loader words the message
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("10MiB/s", 10 * 2**20),
        ("10 MiB /s", 10 * 2**20),
        ("10MiB", 10 * 2**20),
        (2048, 2048),
        ("8Mbit/s", 1_000_000),
        ("64kbit/s", 8000),
    ],
)
def test_a_rate_is_in_bytes_or_in_the_bits_of_line_operators(text, rate):
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["0", 0, "0MiB/s", "1bit/s", "10MiB/h", "/s", True])
def test_what_is_no_rate_is_refused(text):
    with pytest.raises(ValueError):  # noqa: PT011
        parse_rate(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30),
        ("5m", 300),
        ("5min", 300),
        ("1h", 3600),
        ("7d", 604800),
        ("2w", 1209600),
        ("500ms", 0.5),
        ("0.5s", 0.5),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        (1.5, 1.5),
        (0, 0),
        ("1.5", 1.5),
        ("0", 0),
    ],
)
def test_a_duration_is_read_in_seconds(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        *("", "s", "-1s", "5M", "5 parsecs", "1h30", "1e3", "3651000d", "9" * 30, "٣s"),
        *(-1, float("nan"), float("inf"), True, None, 10**400),
    ],
)
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(ValueError):  # noqa: PT011
        parse_duration(text)


@given(st.integers(0, 2**63 - 1))
def test_a_size_that_is_shown_reads_back(size):
    assert parse_size(format_size(size)) == size


@given(st.integers(1, 2**63 - 1))
def test_a_rate_that_is_shown_reads_back(rate):
    assert parse_rate(format_rate(rate)) == rate


@given(st.integers(0, 10**12).map(lambda ms: ms / 1000) | st.floats(0, 1e9))
def test_a_duration_that_is_shown_reads_back(seconds):
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, rel=1e-15, abs=0)


def test_what_is_shown_is_what_a_person_would_write():
    assert format_size(4 * 2**20) == "4MiB"
    assert format_rate(2**20) == "1MiB/s"
    assert [format_duration(s) for s in (604800.0, 90.0, 0.5, 0.0)] == ["7d", "90s", "500ms", "0s"]


@given(st.text(max_size=12) | st.integers() | st.floats() | st.booleans() | st.none())
def test_anything_else_is_refused_as_a_wrong_value_and_nothing_worse(raw):
    for parse in (parse_size, parse_rate, parse_duration):
        with contextlib.suppress(ValueError):
            assert parse(raw) >= 0
