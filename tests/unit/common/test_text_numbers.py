"""Numbers of others are taken as they are meant, and nothing else is."""

from __future__ import annotations

import pytest

from common.text_numbers import retry_after_seconds, signed_number, whole_number


@pytest.mark.parametrize("text", ["", "-1", "+1", "1_0", " 1", "1\n", "٣", "²", "1" * 5000])
def test_what_is_no_plain_number_is_none(text):
    assert whole_number(text) is None


def test_a_number_has_no_more_digits_than_are_allowed():
    assert whole_number("007") == 7
    assert whole_number("9" * 19) == int("9" * 19)
    assert whole_number("123", 3) == 123
    assert whole_number("1234", 3) is None


@pytest.mark.parametrize("number", [0, -1, -(1 << 63), (1 << 63) - 1])
def test_a_signed_number_is_one_of_64_bits(number):
    assert signed_number(str(number)) == number


@pytest.mark.parametrize("text", ["", "-", "--5", "+5", str(1 << 63), str(-(1 << 63) - 1), "-" * 9])
def test_what_is_no_number_of_64_bits_is_none(text):
    assert signed_number(text) is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, None),
        ("", None),
        (" 7 ", 7.0),
        ("Thu, 01 Jan 1970 00:01:40 GMT", 60.0),
        ("Thu, 01 Jan 1970 00:00:10 GMT", 0.0),
        ("nan", None),
        ("Thu, 01 Jan " + "9" * 40 + " 00:00:00 GMT", None),
    ],
)
def test_retry_after_is_seconds_from_now(text, seconds):
    assert retry_after_seconds(text, 40.0) == seconds
