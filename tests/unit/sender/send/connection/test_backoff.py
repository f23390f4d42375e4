from __future__ import annotations

import pytest

from common.errors import (
    ConflictError,
    DigestError,
    ForbiddenError,
    StoppedError,
    TsferryError,
    UnreachableError,
)
from sender.send.connection.backoff import Backoff, retry_helps, retrying


def test_pauses_grow_are_jittered_and_bounded():
    low = Backoff(first=1, longest=30, chance=lambda: 0.0)
    high = Backoff(first=1, longest=30, chance=lambda: 0.999999)
    assert [low.pause(n) for n in range(1, 8)] == [0.5, 1, 2, 4, 8, 15, 15]
    assert [round(high.pause(n)) for n in range(1, 8)] == [1, 2, 4, 8, 16, 30, 30]


def test_the_receiver_may_ask_for_longer_but_not_for_ever():
    backoff = Backoff(first=1, longest=30, chance=lambda: 0.0)
    assert backoff.pause(1, asked=7.0) == 7.0
    assert backoff.pause(1, asked=1e18) == 30
    assert backoff.pause(10_000_000) == 15


def test_only_what_may_heal_is_tried_again():
    assert retry_helps(UnreachableError("x"))
    assert retry_helps(DigestError("x"))
    assert retry_helps(TsferryError("an error of the server's own"))
    assert not retry_helps(ConflictError("x"))
    assert not retry_helps(ForbiddenError("x"))


class Failing:
    def __init__(self, times: int, error: TsferryError) -> None:
        self.left = times
        self.calls = 0
        self.error = error

    def __call__(self) -> str:
        self.calls += 1
        if self.left:
            self.left -= 1
            raise self.error
        return "done"


def test_a_call_is_repeated_with_pauses_until_it_succeeds():
    pauses: list[float] = []
    call = Failing(3, UnreachableError("no"))

    def sleep(seconds: float) -> bool:
        pauses.append(seconds)
        return False

    backoff = Backoff(first=1, chance=lambda: 0.0)
    assert retrying(call, retries=5, backoff=backoff, sleep=sleep) == "done"
    assert pauses == [0.5, 1.0, 2.0]


def test_a_retry_ends():
    call = Failing(100, UnreachableError("no"))
    with pytest.raises(UnreachableError):
        retrying(call, retries=5, backoff=Backoff(), sleep=lambda _: False)
    assert call.calls == 6


def test_what_fails_for_good_is_not_repeated():
    call = Failing(1, ForbiddenError("no"))
    with pytest.raises(ForbiddenError):
        retrying(call, retries=5, backoff=Backoff(), sleep=lambda _: False)
    assert call.calls == 1


def test_a_stop_ends_the_pause():
    with pytest.raises(StoppedError):
        retrying(Failing(9, UnreachableError("x")), retries=5, backoff=Backoff(), sleep=bool)
