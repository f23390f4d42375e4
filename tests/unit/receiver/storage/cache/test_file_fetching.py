"""Files that are fetched for a step: what is told to stop begins no more of them."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from common.errors import StoppedError
from receiver.storage.cache.file_fetching import FileFetcher
from tests.support.web import until


class Source:
    """Says that it has every file."""

    def room_for(self, _: Any, __: Any) -> int:
        return 1


class Slow(FileFetcher):
    """Fetches when it may, and keeps what it began."""

    def __init__(self) -> None:
        @contextmanager
        def reading() -> Any:
            yield None

        cache = SimpleNamespace(
            capacity=None,
            pin=lambda _: None,
            unpin=lambda _: None,
            reserve=lambda *_, **__: True,
            release=lambda _: None,
        )
        engine: Any = SimpleNamespace(reading=reading)
        sources: Any = [Source()]
        given: Any = cache
        super().__init__(engine, sources, list, given, parallel=1)
        self.begun: list[str] = []
        self.gate = threading.Event()

    def _fetch(self, due: Any) -> None:
        self.begun.append(due.row.physical)
        self.gate.wait(60)


def test_who_is_told_to_stop_fetches_what_is_under_way_and_no_more() -> None:
    """A step may wait for thousands of files, and a stop for as long as they all take."""
    fetcher = Slow()
    rows: Any = [SimpleNamespace(physical=f"{each}") for each in range(20)]
    raised: list[BaseException] = []

    def step() -> None:
        try:
            with fetcher.pinned(rows):
                pass
        except StoppedError as error:
            raised.append(error)

    stepping = threading.Thread(target=step)
    stepping.start()
    until(lambda: fetcher.begun == ["0"])
    closing = threading.Thread(target=fetcher.close)
    closing.start()
    until(lambda: fetcher._is_closed)
    fetcher.gate.set()
    for each in (closing, stepping):
        each.join(60)
        assert not each.is_alive()
    assert fetcher.begun == ["0"]
    assert len(raised) == 1
    with pytest.raises(StoppedError), fetcher.pinned(rows):
        pass
