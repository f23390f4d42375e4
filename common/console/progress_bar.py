"""How far a long work is: bars with rate and time left on a terminal, plain lines elsewhere.

tqdm draws the bars, on standard error. It is imported when the first bar is drawn, for most
commands end before. No colour is used (`NO_COLOR` changes nothing); `TERM=dumb` is no terminal, nor
is one without a size.
What is logged meanwhile goes above the bars (`beside_bars`), and never into one.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final, TextIO

from common.console.terminal import printable, size_text

if TYPE_CHECKING:
    from tqdm import tqdm

__all__ = ["WorkProgress", "beside_bars", "duration_text"]

_FIRST: Final = 2.0
"""Seconds after which a work has its first plain line, where there is no terminal."""
_EVERY: Final = 30.0
"""Seconds between two plain lines."""
_DRAWN: Final = 0.2
"""Seconds between two states of a bar."""
_BAR: Final = (
    "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} {rate_fmt}, {remaining} left{postfix}"
)


class WorkProgress:
    """A row for each work under way; any thread may call.

    Args:
        stream: standard error, unless told otherwise.
        quiet: show nothing at all.
        clock: seconds that nobody sets.
        drawn: seconds between two states of a bar.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        quiet: bool = False,
        clock: Callable[[], float] = time.monotonic,
        drawn: float = _DRAWN,
    ) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._quiet = quiet
        self._clock = clock
        self._drawn = drawn
        self._lock = threading.Lock()
        self._rows: dict[str, _Row] = {}
        self._has_bars = _takes_bars(self._stream)

    @property
    def is_seen(self) -> bool:
        """Whether what is told is shown at all."""
        return not self._quiet

    def say(self, text: str, *, row: str = "") -> None:
        """Show what is going on, where nobody knows how long it takes: on terminals only."""
        if self._quiet or not self._has_bars:
            return
        with self._lock:
            self._row(row, text).bar_of(None, size=False, every=self._drawn).refresh()

    def show(
        self, step: str, done: int, total: int, *, size: bool = False, note: str = "", row: str = ""
    ) -> None:
        """Show how far a step is.

        Args:
            step: what is being done.
            done: of it.
            total: all of it; it may change.
            size: these are bytes.
            note: more to say, in a few words.
            row: which work it is of, where there are several.
        """
        if self._quiet:
            return
        with self._lock:
            found = self._row(row, step)
            if not self._has_bars:
                self._tell(found, done, total, size, note)
                return
            bar = found.bar_of(total, size=size, every=self._drawn)
            bar.total = total
            if note:
                bar.set_postfix_str(printable(note), refresh=False)
            if found.fresh:
                bar.initial, found.fresh = done, False
                bar.n = bar.last_print_n = done
                bar.refresh()
            else:
                bar.update(done - bar.n)

    def clear(self) -> None:
        """Leave empty rows."""
        with self._lock:
            for each in self._rows.values():
                each.close()
            self._rows.clear()

    def _row(self, name: str, step: str) -> _Row:
        found = self._rows.get(name)
        if found is None or found.step != step:
            if found is not None:
                found.close()
            found = self._rows[name] = _Row(step, self._stream, self._clock())
        return found

    def _tell(self, row: _Row, done: int, total: int, size: bool, note: str) -> None:
        now = self._clock()
        if row.first is None:
            row.first = done
        if now < row.due:
            return
        row.due = now + _EVERY
        passed, came = now - row.begun, done - row.first
        shown: Callable[[int], str] = size_text if size else str
        text = f"{row.step}: {_percent(done, total)}, {shown(done)} of {shown(total)}"
        if came > 0:
            rate = came / passed
            speed = f"{size_text(round(rate))}/s" if size else f"{rate:.3g}/s"
            text += f", {speed}, {duration_text((total - done) / rate)} left"
        if note:
            text += f", {note}"
        self._stream.write(f"{printable(text)}\n")
        self._stream.flush()


def _takes_bars(stream: TextIO) -> bool:
    """Whether it is a terminal that can go back in a line, and says how many lines it has.

    A serial console, and a terminal that a program made, often do not: tqdm draws nothing there.
    """
    if not stream.isatty() or os.environ.get("TERM") == "dumb":
        return False
    try:
        return os.get_terminal_size(stream.fileno()).lines > 1
    except OSError:  # it has no descriptor
        return True


class _Row:
    """One work: its step, and what is drawn of it."""

    def __init__(self, step: str, stream: TextIO, now: float) -> None:
        self.step = step
        self.begun = now
        self.due = now + _FIRST
        self.first: int | None = None
        self.fresh = True
        self._stream = stream
        self._bar: tqdm[Any] | None = None

    def bar_of(self, total: int | None, *, size: bool, every: float) -> tqdm[Any]:
        if self._bar is None:
            self._bar = _drawn_bar()(
                total=total,
                desc=printable(self.step),
                file=self._stream,
                leave=False,
                dynamic_ncols=True,
                mininterval=every,
                miniters=0,
                unit="B" if size else "",
                unit_scale=True,
                unit_divisor=1024 if size else 1000,
                bar_format="{desc} ({elapsed})" if total is None else _BAR,
            )
        return self._bar

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def _drawn_bar() -> type[tqdm[Any]]:
    from tqdm import tqdm

    # Its own lock is one of several processes too, and its monitor a thread; neither is needed.
    tqdm.set_lock(_LOCK)
    tqdm.monitor_interval = 0
    return tqdm


_LOCK = threading.RLock()


def beside_bars(stream: TextIO) -> AbstractContextManager[object]:
    """Write to a stream within the block, and no line of it is glued to a bar."""
    drawn = sys.modules.get("tqdm")
    if drawn is None or stream.closed or not stream.isatty():
        return nullcontext()
    found: AbstractContextManager[object] = drawn.tqdm.external_write_mode(file=stream)
    return found


def _percent(done: int, total: int) -> str:
    return f"{100 * done // total if total else 100} %"


def duration_text(seconds: float) -> str:
    """A duration for people: `40 s`, `12 min`, `3.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
