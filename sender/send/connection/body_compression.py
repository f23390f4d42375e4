"""Whether a body travels compressed: a sample says what it becomes, the line what that saves.

Judged anew for each body. Files that are compressed inside go as they are, and so does everything
on a line that takes bytes faster than they are compressed; neither has to be set.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Literal

from common import zstd
from common.errors import TsferryError
from common.network.bandwidth import Bandwidth

__all__ = ["BodyCompression"]

_log = logging.getLogger(__name__)

_LEVEL = 1
"""Level 3 takes half as much time again, for two per cent less of a file of sensors."""
_SAMPLE = 1 << 16
_SMALLEST = 1 << 12
_MOST_OF_IT = 0.95
"""A body that stays larger than this part of itself goes as it is."""
_MARGIN = 2.0
"""What is saved on the line has to be worth the processor's time so many times: the other end works
too, and the processor has more to do."""
_FASTEST = 1e9
"""On a line that takes so many bytes a second nothing pays, whatever the processor."""
_PATIENCE = 3
"""Bodies that were not understood, until no more are compressed."""


class BodyCompression:
    """Compresses bodies for one receiver; threads may share it.

    Args:
        mode: `off`, `zstd` (whatever becomes smaller), `auto` (if it pays).
        bandwidth: of the line: what it takes, and what it may.
        seconds: processor time of this thread.
    """

    def __init__(
        self,
        mode: Literal["auto", "off", "zstd"],
        bandwidth: Bandwidth,
        seconds: Callable[[], float] = time.thread_time,
    ) -> None:
        self._mode = mode
        self._bandwidth = bandwidth
        self._seconds = seconds
        self._offered = False
        self._lock = threading.Lock()
        self._not_understood = 0
        self._was_on: bool | None = None

    def offered(self, encodings: Iterable[str]) -> None:
        """What the receiver takes, by its answer to a check."""
        wanted = self._mode != "off" and zstd.ZSTD in encodings
        self._offered = wanted and self._not_understood < _PATIENCE

    def compressed(self, body: bytes) -> bytes | None:
        """The body as it is to travel; None: as it is."""
        if not self._offered or len(body) < _SMALLEST or not self._may_pay():
            return None
        library = zstd.codec()
        if library is None or not self._pays(library, body):
            return None
        small: bytes = library.compress(body, _LEVEL)
        return small if len(small) < len(body) * _MOST_OF_IT else None

    def not_understood(self, error: TsferryError) -> bool:
        """Whether a refusal may be of the coding, so that the same goes again as it is."""
        status = error.extra.get("status")
        if status not in (400, 415):
            return False
        with self._lock:
            self._not_understood += _PATIENCE if status == 415 else 1
            if self._not_understood >= _PATIENCE and self._offered:
                self._offered = False
                _log.warning("nothing is compressed any more: %s", error.message)
        return True

    def _may_pay(self) -> bool:
        """Whether it is worth a sample, and the library's memory."""
        rate = self._bandwidth.line_rate()
        return self._mode != "auto" or (rate is not None and rate < _FASTEST)

    def _pays(self, library: Any, body: bytes) -> bool:
        rate = self._bandwidth.line_rate()
        begin = max(0, (len(body) - _SAMPLE) // 2)
        sample = body[begin : begin + _SAMPLE]
        start = self._seconds()
        part = len(library.compress(sample, _LEVEL)) / len(sample)
        speed = len(sample) / max(self._seconds() - start, 1e-9)
        pays = part < _MOST_OF_IT
        if self._mode == "auto" and rate is not None:
            pays = pays and (1 - part) / rate > _MARGIN / speed
        if pays is not self._was_on:
            self._was_on = pays
            _log.debug(
                "bodies go %s",
                "compressed" if pays else "as they are",
                extra={"part": round(part, 2), "speed": round(speed), "rate": rate},
            )
        return pays
