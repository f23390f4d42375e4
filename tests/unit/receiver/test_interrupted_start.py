"""Ctrl-C while a receiver starts its threads is Ctrl-C, and nothing holds up the next one."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.support.node_world import Edge, World, path_of, tsfile


class InterruptedAt:
    """Stands in for the start of threads; the n-th never begins."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, nth: int) -> None:
        self.begun = 0
        real = threading.Thread.start

        def start(thread: threading.Thread) -> None:
            self.begun += 1
            if self.begun == nth:
                raise KeyboardInterrupt
            real(thread)

        monkeypatch.setattr(threading.Thread, "start", start)


def test_an_interrupt_at_the_start_of_any_thread_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    nth = 0
    while True:
        nth += 1
        with monkeypatch.context() as patch:
            starts = InterruptedAt(patch, nth)
            try:
                world.node().close()
            except KeyboardInterrupt:
                continue
        break
    assert nth > 5, f"there were {starts.begun} threads"
    with world.node() as node:
        Edge(node).round({path_of(1): tsfile()})
