"""Which address of a receiver is asked, and what is said when none answers."""

from __future__ import annotations

import pytest

from common.errors import (
    BusyError,
    CloneError,
    ForbiddenError,
    NotTheWriterError,
    TsferryError,
    UnauthorizedError,
    UnreachableError,
)
from sender.send.connection.addresses import Addresses, is_elsewhere

URLS = ("http://a", "http://b", "http://c")


class World:
    """What is said at each address."""

    def __init__(self, **said: TsferryError | str) -> None:
        self.said = {f"http://{name}": each for name, each in said.items()}
        self.asked: list[str] = []

    def ask(self, url: str) -> str:
        self.asked.append(url[-1])
        found = self.said[url]
        if isinstance(found, TsferryError):
            raise found
        return found


GONE, FENCED = UnreachableError("nobody"), NotTheWriterError("not I")


def test_the_one_that_answered_last_is_asked_first():
    addresses = Addresses(URLS)
    world = World(a=GONE, b="yes", c="yes")
    assert addresses.asked(world.ask) == "yes"
    assert addresses.now == "http://b"
    world.said["http://a"] = "I too"  # it came back, as the stand-by of the other
    assert addresses.asked(world.ask) == "yes"
    assert world.asked == ["a", "b", "b"]


def test_all_are_asked_in_a_circle():
    addresses = Addresses(URLS)
    addresses.prefer("http://c")
    world = World(a=FENCED, b="yes", c=GONE)
    assert addresses.asked(world.ask) == "yes"
    assert world.asked == ["c", "a", "b"]


def test_an_address_that_is_not_in_the_configuration_is_never_taken():
    addresses = Addresses(URLS[:2])
    for each in ("http://c", None, ""):
        addresses.prefer(each)
        assert addresses.now == "http://a"


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ({"a": GONE, "b": FENCED}, UnreachableError),
        ({"a": FENCED, "b": GONE}, UnreachableError),
        ({"a": UnauthorizedError("who"), "b": GONE}, UnreachableError),
        ({"a": FENCED, "b": UnauthorizedError("who")}, UnauthorizedError),
        ({"a": FENCED, "b": FENCED}, UnreachableError),  # the other is about to take over
        ({"a": ForbiddenError("bad certificate"), "b": FENCED}, ForbiddenError),
    ],
)
def test_when_none_answers_what_may_pass_is_raised_with_the_words_of_all(said, kind):
    addresses = Addresses(URLS[:2])
    with pytest.raises(kind) as raised:
        addresses.asked(World(**said).ask)
    assert type(raised.value) is kind
    assert all(each.message in raised.value.message for each in said.values())
    assert addresses.now == "http://a"


@pytest.mark.parametrize("word", [CloneError("two machines"), BusyError("at its limit")])
def test_what_only_the_receiver_itself_says_is_its_word(word):
    world = World(a=word, b="yes")
    with pytest.raises(type(word)):
        Addresses(URLS[:2]).asked(world.ask)
    assert world.asked == ["a"]


def test_of_a_single_address_the_error_is_as_it_was():
    with pytest.raises(NotTheWriterError) as raised:
        Addresses(URLS[:1]).asked(World(a=FENCED).ask)
    assert raised.value is FENCED


def test_another_address_is_of_use_where_nobody_answers_or_one_that_is_no_master():
    assert is_elsewhere(GONE)
    assert is_elsewhere(FENCED)
    assert not any(map(is_elsewhere, (None, BusyError("full"), CloneError("two"))))
