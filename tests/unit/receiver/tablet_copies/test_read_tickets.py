"""Tickets: for one tablet of one node, for a while by its own clock, and for nothing else."""

from __future__ import annotations

import pytest

from common.errors import ForbiddenError
from receiver.tablet_copies.read_tickets import TicketKeys, TicketMaker

TABLET, OTHER = "a" * 32, "b" * 32


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clocks() -> tuple[Clock, Clock]:
    return Clock(), Clock()


def handed_over(clocks: tuple[Clock, Clock]) -> tuple[TicketMaker, TicketKeys]:
    maker, keys = TicketMaker(lasts=100, monotonic=clocks[0]), TicketKeys(clocks[1])
    for _ in range(2):
        keys.take(maker.key_for("n", "boot"))
    return maker, keys


def test_a_ticket_is_for_one_tablet(clocks: tuple[Clock, Clock]):
    maker, keys = handed_over(clocks)
    ticket = maker.ticket("n", TABLET)
    assert ticket is not None
    keys.check(ticket, TABLET)
    with pytest.raises(ForbiddenError, match="something else"):
        keys.check(ticket, OTHER)


def test_a_ticket_ages_by_the_clock_of_the_node_since_its_key_came_first(
    clocks: tuple[Clock, Clock],
):
    maker, keys = handed_over(clocks)
    ticket = maker.ticket("n", TABLET)
    assert ticket is not None
    clocks[0].now += 1e6  # of the master, which nobody asks
    clocks[1].now += 99
    keys.check(ticket, TABLET)
    clocks[1].now += 2
    with pytest.raises(ForbiddenError, match="too old"):
        keys.check(ticket, TABLET)


def test_a_key_that_comes_again_grows_no_younger(clocks: tuple[Clock, Clock]):
    maker, keys = handed_over(clocks)
    key, ticket = maker.key_for("n", "boot"), maker.ticket("n", TABLET)
    assert ticket is not None
    clocks[1].now += 60
    keys.take(key)
    clocks[1].now += 60
    with pytest.raises(ForbiddenError):
        keys.check(ticket, TABLET)


def test_a_new_key_is_used_once_the_node_has_spoken_behind_it(clocks: tuple[Clock, Clock]):
    maker, keys = handed_over(clocks)
    before = maker.ticket("n", TABLET)
    clocks[0].now += 30
    fresh = maker.key_for("n", "boot")  # its answer is on its way
    assert maker.ticket("n", TABLET) == before
    keys.take(fresh)
    maker.key_for("n", "boot")
    after = maker.ticket("n", TABLET)
    assert after is not None
    assert after != before
    keys.check(after, TABLET)


def test_no_ticket_is_made_by_a_key_that_is_half_gone(clocks: tuple[Clock, Clock]):
    maker, _ = handed_over(clocks)
    clocks[0].now += 51
    assert maker.ticket("n", TABLET) is None
    assert maker.ticket("unknown", TABLET) is None


def test_another_start_of_a_node_has_other_keys(clocks: tuple[Clock, Clock]):
    maker, keys = handed_over(clocks)
    again = TicketKeys(clocks[1])
    again.take(maker.key_for("n", "other boot"))
    ticket = maker.ticket("n", TABLET)
    assert ticket is not None
    again.check(ticket, TABLET)
    with pytest.raises(ForbiddenError):
        keys.check(ticket, TABLET)


@pytest.mark.parametrize("ticket", ["", ".", "a.b", "0" * 32 + "." + "0" * 64, "x" * 5000])
def test_what_is_no_ticket_opens_nothing(clocks: tuple[Clock, Clock], ticket: str):
    _, keys = handed_over(clocks)
    with pytest.raises(ForbiddenError):
        keys.check(ticket, TABLET)


def test_a_ticket_to_send_is_for_what_stands_in_it_and_ages_as_others_do(
    clocks: tuple[Clock, Clock],
):
    maker, keys = handed_over(clocks)
    made = maker.upload_ticket("n", "what")
    assert made is not None
    ticket, lasts = made
    assert lasts == 100
    assert keys.check_upload(ticket) == "what"
    ident, mac, what = ticket.split(".")
    for wrong in (
        f"{ident}.{mac}.other",
        f"{ident}.{mac}",
        f"{ident}.{mac}.wh at",
        f"{'0' * 32}.{mac}.{what}",
        maker.ticket("n", "what") or "",
        f"{maker.ticket('n', 'what')}.what",
    ):
        with pytest.raises(ForbiddenError):
            keys.check_upload(wrong)
    with pytest.raises(ForbiddenError):
        keys.check(ticket, "what")
    clocks[0].now += 40
    assert maker.upload_ticket("n", "what") == (ticket, 60)
    clocks[1].now += 101
    with pytest.raises(ForbiddenError, match="too old"):
        keys.check_upload(ticket)
    clocks[0].now += 20
    assert maker.upload_ticket("n", "what") is None
    assert maker.upload_ticket("other", "what") is None
