"""`sync/device_owner.log`: who owned which device since when, for people to read.

    # tsferry device owners, version 1: time, commit, device, owner, why
    2026-01-31T23:59:59.123+00:00 463856467968000000 "root.turbine.d1" <sender uuid> first load
    2026-02-01T08:00:00.000+00:00 463864016896000000 "root.turbine.d1" - released by the operator

The log of the engine is the truth and this is its shadow: written behind each commit, flushed at
the end. What a crash left out of it, or damaged in it, is put right at the next start, by lines
that say so; lines that are sound stay, they are the history.
"""

from __future__ import annotations

import datetime
import json
import logging
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import TYPE_CHECKING

from common.console.terminal import printable
from common.durable import temporary_name
from common.errors import NoSpaceError, TsferryError
from common.formats.linelog import parse_lines
from receiver.metadata.state.tables.sender_tables.owners import OwnerChange

if TYPE_CHECKING:
    from collections.abc import Iterable

    from common.durable import Tree, WriteFile
    from receiver.metadata.model.true_times import TrueTimes
    from receiver.metadata.state.state import State

__all__ = ["JOURNAL", "OwnerJournal", "parse_journal"]

JOURNAL = "sync/device_owner.log"
_TITLE = "# tsferry device owners, version 1: time, commit, device, owner, why"
_MADE_ANEW = "written anew from the engine's log"
_LIMIT = 1 << 32
_log = logging.getLogger(__name__)
_json = json.JSONDecoder()


def parse_journal(data: bytes) -> tuple[dict[str, str], int]:
    """(owner of each device, end of the sound part in bytes) of a journal; never raises."""
    owners: dict[str, str] = {}
    lines = parse_lines(data).lines
    if not lines or lines[0] != _TITLE:
        return owners, 0
    good = len(f"{_TITLE}\n".encode())
    for line in lines[1:]:
        try:
            device, owner = _parse(line)
        except ValueError:
            break
        if owner == "-":
            owners.pop(device, None)
        else:
            owners[device] = owner
        good += len(line.encode()) + 1
    return owners, good


def _parse(line: str) -> tuple[str, str]:
    """Device and owner of a line; `ValueError` if it is none."""
    time, commit, rest = line.split(" ", 2)
    datetime.datetime.fromisoformat(time)
    int(commit)
    device, end = _json.raw_decode(rest)
    _, owner, _ = rest[end:].split(" ", 2)
    if not isinstance(device, str):
        raise ValueError("the device is no text")
    return device, owner


def _time(ts: int, times: TrueTimes) -> str:
    moment = datetime.datetime.fromtimestamp(times.seconds(ts), datetime.UTC)
    return moment.isoformat(timespec="milliseconds")


def _timed(data: bytes, times: TrueTimes) -> bytes:
    """Sound lines, with the times that their commits stand for now."""
    title, *lines = data.removesuffix(b"\n").split(b"\n")
    found = [title]
    for line in lines:
        _, commit, rest = line.split(b" ", 2)
        found.append(b"%s %s %s" % (_time(int(commit), times).encode(), commit, rest))
    return b"\n".join([*found, b""])


def _format(changes: Iterable[OwnerChange], times: TrueTimes) -> str:
    lines = []
    begins: dict[int, str] = {}  # those of a load are many, of one commit
    for each in changes:
        begin = begins.get(each.ts)
        if begin is None:
            begin = begins[each.ts] = f"{_time(each.ts, times)} {each.ts}"
        end = f"{each.sender or '-'} {printable(each.reason)}\n"
        lines += [f"{begin} {_quoted(device)} {end}" for device in each.devices]
    return "".join(lines)


def _quoted(device: str) -> str:
    return encode_basestring(device) if device.isprintable() else encode_basestring_ascii(device)


class OwnerJournal:
    """The journal of a running engine. Nothing hangs on it: it never stops a commit."""

    def __init__(self, tree: Tree, state: State, size: int) -> None:
        self._tree = tree
        self._file: WriteFile = tree.open_write(JOURNAL)
        self._size = size
        self._clock = state.clock
        self._corrected = state.clock.row.changed
        self._pending: list[OwnerChange] = []
        self._lost = False

    @classmethod
    def open(cls, tree: Tree, state: State) -> OwnerJournal:
        """Bring the journal up to the state, and let it follow from now on."""
        data = tree.read(JOURNAL, limit=_LIMIT) if tree.exists(JOURNAL) else b""
        owners, good = parse_journal(data)
        if data and good < len(data):
            _log.warning("the journal of owners is not whole", extra={"good_bytes": good})
        sound = data[:good] or f"{_TITLE}\n".encode()
        timed = _timed(sound, state.clock.times)
        if timed != data:
            _put(tree, timed)
        journal = cls(tree, state, len(timed))
        for change in _differences(owners, state):
            journal.note(change)
        journal.write()
        state.owner_table.on_change = journal.note
        return journal

    def note(self, change: OwnerChange) -> None:
        """Remember a change until `write`."""
        if not self._lost:
            self._pending.append(change)

    def write(self) -> None:
        """Write what was noted, without waiting for the disk."""
        if self._lost or not (self._pending or self._corrected != self._clock.row.changed):
            return
        try:
            self._correct()
            times = self._clock.times
            lines = _format(self._pending, times).encode()
            self._size += self._file.write(lines, at=self._size)
        except NoSpaceError as error:  # they stay pending
            _log.warning("the journal of owners is behind", extra={"reason": str(error)})
        except Exception as error:
            self._lost = True
            self._pending.clear()
            known = isinstance(error, TsferryError | OSError)
            _log.error(
                "the journal of owners is not written until the next start",
                exc_info=None if known else error,
                extra={"reason": str(error)},
            )
        else:
            self._pending.clear()

    def _correct(self) -> None:
        """After a correction of the clock, give the lines that are there the times they stand for.

        By a commit of it the times of lines are other ones; the commits in them stay.
        """
        if self._corrected == self._clock.row.changed:
            return
        written = self._tree.read(JOURNAL, limit=_LIMIT)[: self._size]
        timed = _timed(written, self._clock.times)
        if timed != written:
            self._size = _put(self._tree, timed)
            before, self._file = self._file, self._tree.open_write(JOURNAL)
            before.close()
        self._corrected = self._clock.row.changed

    def close(self) -> None:
        """Flush and close it."""
        try:
            self.write()
            if not self._lost:
                self._file.sync()
        except (TsferryError, OSError) as error:  # made afresh at the next start
            _log.warning("the journal of owners could not be flushed", extra={"reason": str(error)})
        finally:
            self._file.close()


def _put(tree: Tree, content: bytes) -> int:
    """Replace the journal; what a crash leaves lies where the engine sweeps. Returns its size."""
    tree.make_dirs("sync")
    temporary = temporary_name()
    with tree.create(temporary, mode=0o640) as file:
        file.write(content)
        file.sync()
    tree.rename(temporary, JOURNAL)
    return len(content)


def _differences(owners: dict[str, str], state: State) -> list[OwnerChange]:
    changes = [
        OwnerChange(row.since, (device,), row.sender, _MADE_ANEW)
        for device, row in state.owners.items()
        if owners.get(device) != row.sender
    ]
    gone = [device for device in owners if device not in state.owners]
    if gone:
        changes.append(OwnerChange(state.newest, gone, None, _MADE_ANEW))
    return changes
