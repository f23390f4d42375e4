"""Whose turn it is among requests that wait for a thread."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from receiver.web.server.workers import WaitingRequests


@dataclass
class Asking:
    name: str
    size: int

    @property
    def requests(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(content_length=self.size)]


def order(*waiting: Asking) -> str:
    queue = WaitingRequests()
    for each in waiting:
        queue.append(each)
    return "".join(queue.popleft().name for _ in range(len(queue)))


def test_short_bodies_pass_long_ones_and_keep_their_order_among_themselves() -> None:
    long = [Asking(name, 1 << 20) for name in "AB"]
    assert order(long[0], Asking("a", 0), long[1], Asking("b", 64 << 10)) == "abAB"


def test_a_long_body_is_passed_by_some_short_ones_at_most() -> None:
    short = [Asking(str(number % 10), 10) for number in range(20)]
    assert order(*short, Asking("A", 1 << 20), Asking("B", 1 << 20)) == "01234567A89012345B6789"


def test_short_bodies_that_passed_nobody_do_not_count() -> None:
    queue = WaitingRequests()
    for _ in range(20):
        queue.append(Asking("a", 0))
        queue.popleft()
    queue.append(Asking("A", 1 << 20))
    queue.append(Asking("b", 0))
    assert queue.popleft().name == "b"
    assert queue.popleft().name == "A"
    with pytest.raises(IndexError):
        queue.popleft()
