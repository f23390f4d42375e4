"""What is put for later comes when it is due, in that order, and not after the end."""

from __future__ import annotations

import threading

from receiver.transfer.receiving.due_later import DueLater


def test_what_is_put_comes_in_the_order_in_which_it_is_due() -> None:
    now, came, done = [0.0], list[str](), threading.Event()

    def do(what: str) -> None:
        came.append(what)
        if what == "last":
            done.set()

    with DueLater(do, "test", monotonic=lambda: now[0]) as later:
        for seconds, what in ((3600.0, "third"), (60.0, "second"), (30.0, "first")):
            later.put(seconds, what)
        now[0] = 7200.0
        later.put(0.0, "last")
        assert done.wait(20)
    assert came == ["first", "second", "third", "last"]


def test_what_is_not_due_does_not_come_and_nothing_does_after_the_end() -> None:
    came: list[str] = []
    later = DueLater(came.append, "test")
    later.put(3600.0, "far away")
    assert later.waiting == 1
    later.close()
    later.put(0.0, "too late")
    assert (came, later.waiting) == ([], 0)
