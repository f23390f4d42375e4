"""What a node has reported of its tablets, in columns: 62 bytes a tablet.

A thousand nodes with ten thousand tablets each are ten million rows: as objects they would take
several gigabytes, and hold up each collection of garbage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from common.errors import ProtocolError
from receiver.heartbeats.node_wire import MOST_BYTES, TABLET_STATES, ReportedTablet, TabletState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = ["ReportedColumns", "ReportedTotals"]

_ID: Final = np.dtype("S16")
"""Sixteen bytes compare as sixteen bytes, those that end with zeros too: all have as many."""
_REST: Final = np.dtype(
    [
        ("generation", "<u8"),
        ("version", "<u8"),
        ("size", "<u8"),
        ("digest", "S16"),
        ("files", "<u4"),
        ("state", "u1"),
        ("known", "u1"),
    ]
)
_LOW: Final = np.uint64((1 << 32) - 1)
_HALF: Final = np.uint64(32)
_NUMBER: Final = {state: number for number, state in enumerate(TABLET_STATES)}


class ReportedTotals(NamedTuple):
    """Tablets of a node in numbers.

    Attributes:
        files: of all tablets.
        size: bytes of all tablets, and not more than a size can be.
        unknown: tablets that the catalogue did not have when they were reported.
        states: tablets, by how they stand.
    """

    files: int
    size: int
    unknown: int
    states: Mapping[TabletState, int]


class ReportedColumns:
    """Tablets of a node, in order of their ids; changed by one thread at a time."""

    def __init__(self, ids: np.ndarray, rest: np.ndarray) -> None:
        self._ids = ids
        self._rest = rest
        # Asked for of all nodes with each look at them, and changed seldom: counted once. Whoever
        # counts while a change goes on keeps what he found for the state before, and no longer.
        self._changes = 0
        self._counted: tuple[int, ReportedTotals] | None = None

    @classmethod
    def none(cls) -> ReportedColumns:
        """No tablets."""
        return cls(np.empty(0, _ID), np.empty(0, _REST))

    @classmethod
    def of(cls, tablets: Sequence[ReportedTablet], known: Sequence[bool]) -> ReportedColumns:
        """Those of a page.

        Args:
            tablets: in order of their ids.
            known: whether the catalogue has each of them.

        Raises:
            ProtocolError: they are in another order, or one is there twice.
        """
        ids = _packed([each.id for each in tablets])
        if len(ids) > 1 and not (ids[:-1] < ids[1:]).all():
            raise ProtocolError("the tablets of a report come in order of their ids, each once")
        rest = np.empty(len(tablets), _REST)
        rest["generation"] = [each.generation for each in tablets]
        rest["version"] = [each.version for each in tablets]
        rest["size"] = [each.size for each in tablets]
        rest["digest"] = _packed([each.digest for each in tablets])
        rest["files"] = [each.files for each in tablets]
        rest["state"] = [_NUMBER[each.state] for each in tablets]
        rest["known"] = known
        return cls(ids, rest)

    @classmethod
    def joined(cls, pages: Sequence[ReportedColumns]) -> ReportedColumns:
        """Pages that follow each other."""
        if not pages:
            return cls.none()
        return cls(
            np.concatenate([each._ids for each in pages]),
            np.concatenate([each._rest for each in pages]),
        )

    def __len__(self) -> int:
        return len(self._ids)

    def follows(self, before: ReportedColumns) -> bool:
        """Whether all of its ids are behind those of another."""
        return not len(self) or not len(before) or bool(before._ids[-1] < self._ids[0])

    @property
    def totals(self) -> ReportedTotals:
        """In numbers."""
        changes, counted = self._changes, self._counted
        if counted is None or counted[0] != changes:
            counted = self._counted = changes, _counted(self._rest)
        return counted[1]

    def put(self, changed: ReportedColumns) -> None:
        """Let tablets stand as they are in another, those that are new too."""
        places = np.searchsorted(self._ids, changed._ids)
        there = np.zeros(len(changed), bool)
        inside = places < len(self)
        there[inside] = self._ids[places[inside]] == changed._ids[inside]
        self._rest[places[there]] = changed._rest[there]
        if not there.all():
            new = ~there
            self._ids = np.insert(self._ids, places[new], changed._ids[new])
            self._rest = np.insert(self._rest, places[new], changed._rest[new])
        self._changes += 1

    def drop(self, ids: Iterable[str]) -> None:
        """Have tablets be there no more; those that are not there are none."""
        gone = np.isin(self._ids, _packed(list(ids)))
        if gone.any():
            self._ids, self._rest = self._ids[~gone], self._rest[~gone]
            self._changes += 1

    def tablets(self) -> Iterator[ReportedTablet]:
        """Tablets in order of their ids."""
        return map(self._tablet, range(len(self)))

    def find(self, tablet: str) -> ReportedTablet | None:
        """How a tablet stands, None if it is not there."""
        wanted = _packed([tablet])
        at = int(np.searchsorted(self._ids, wanted)[0])
        return self._tablet(at) if at < len(self) and self._ids[at] == wanted[0] else None

    def unknown(self) -> list[ReportedTablet]:
        """Those that the catalogue did not have when they were reported."""
        return [self._tablet(int(at)) for at in np.flatnonzero(self._rest["known"] == 0)]

    def _tablet(self, at: int) -> ReportedTablet:
        row = self._rest[at]
        return ReportedTablet(
            id=_hex(self._ids[at]),
            generation=int(row["generation"]),
            state=TABLET_STATES[int(row["state"])],
            version=int(row["version"]),
            files=int(row["files"]),
            size=int(row["size"]),
            digest=_hex(row["digest"]),
        )


def _counted(rest: np.ndarray) -> ReportedTotals:
    size = rest["size"]  # 64 bits each, and so would the sum have
    low, high = (size & _LOW).sum(), (size >> _HALF).sum()
    counts = np.bincount(rest["state"], minlength=len(TABLET_STATES))
    return ReportedTotals(
        files=int(rest["files"].sum(dtype=np.int64)),
        size=min((int(high) << 32) + int(low), MOST_BYTES),
        unknown=len(rest) - int(np.count_nonzero(rest["known"])),
        states=dict(zip(TABLET_STATES, map(int, counts), strict=True)),
    )


def _packed(texts: Sequence[str]) -> np.ndarray:
    """Ids of 32 hex digits, as bytes.

    Raises:
        ProtocolError: one is none.
    """
    joined = "".join(texts)
    try:
        packed = bytes.fromhex(joined)
    except ValueError:
        packed = b""
    if packed.hex() != joined or any(len(each) != 32 for each in texts):
        raise ProtocolError("ids and digests of a report are 32 lower-case hex digits")
    return np.frombuffer(packed, _ID)


def _hex(packed: bytes) -> str:
    """An id as text; numpy leaves the zeros at its end out."""
    return bytes(packed).ljust(16, b"\0").hex()
