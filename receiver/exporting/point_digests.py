"""What points come to, whatever pieces they pass in: so many, and a digest of times and values."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from receiver.points.columns import Column
from receiver.points.encodings import Binaries

if TYPE_CHECKING:
    import numpy.typing as npt

    from receiver.points.decoding import Times

__all__ = ["DeviceDigests", "SeriesSum", "whole_digest"]

_SIZE: Final = 16


class SeriesSum(NamedTuple):
    """What a series comes to.

    Attributes:
        points: how many.
        digest: of type, times and values, in their order, floats by their bits.
    """

    points: int
    digest: bytes


class _Running:
    def __init__(self, data_type: int) -> None:
        self._type, self._points = data_type, 0
        self._parts = [hashlib.blake2b(digest_size=_SIZE) for _ in range(3)]

    def add(self, times: Times, column: Column | None) -> None:
        self._points += len(times)
        self._parts[0].update(np.ascontiguousarray(times).data)
        if column is None:
            return
        values = column.values
        if isinstance(values, Binaries):
            bounds = values.offsets.astype(np.int64)
            self._parts[1].update(np.ascontiguousarray(np.diff(bounds)).data)
            self._parts[2].update(np.ascontiguousarray(values.data[bounds[0] : bounds[-1]]).data)
        else:
            self._parts[1].update(np.ascontiguousarray(values).data)

    def sum(self) -> SeriesSum:
        whole = hashlib.blake2b(bytes((self._type,)), digest_size=_SIZE)
        for each in self._parts:
            whole.update(each.digest())
        return SeriesSum(self._points, whole.digest())


class DeviceDigests:
    """The series of a device; the times of its rows, where shared, are one too (``""``)."""

    def __init__(self) -> None:
        self._running: dict[str, _Running] = {}

    def add_times(self, times: Times) -> None:
        """Take times of rows."""
        if len(times):
            self._of("", 0).add(times, None)

    def add(self, measurement: str, times: Times, column: Column) -> None:
        """Take points: those of rows that have a value."""
        if column.valid is not None:
            times, column = times[column.valid], _present(column, column.valid)
        if len(times):
            self._of(measurement, column.data_type).add(times, column)

    def sums(self) -> Mapping[str, SeriesSum]:
        """Of all that was taken."""
        return {name: each.sum() for name, each in self._running.items()}

    def _of(self, measurement: str, data_type: int) -> _Running:
        if measurement not in self._running:
            self._running[measurement] = _Running(data_type)
        return self._running[measurement]


def _present(column: Column, valid: npt.NDArray[np.bool_]) -> Column:
    """The values of a column, without nulls (which have no bytes)."""
    values = column.values
    if not isinstance(values, Binaries):
        return Column(column.data_type, values[valid])
    ends = np.cumsum(np.diff(values.offsets)[valid], dtype=np.int64) + values.offsets[0]
    offsets = np.concatenate((values.offsets[:1], ends)).astype(np.int32)
    return Column(column.data_type, Binaries(offsets, values.data))


def whole_digest(sums: Sequence[tuple[str, Mapping[str, SeriesSum]]]) -> str:
    """Of all devices of a file, in hex."""
    whole = hashlib.blake2b(digest_size=_SIZE)
    for device, series in sorted(sums):
        for name in sorted(series):
            points, digest = series[name]
            whole.update(f"{device}\0{name}\0{points}\0".encode() + digest)
    return whole.hexdigest()
