"""What a decoder of one encoding and type takes and gives.

A decoder gets bytes and the number of values that the file says stand in them. It gives what it
decoded and how far it came; ``decode_values`` judges. Most are a kernel of compiled code behind
``numeric``; all kernels share one form:

    decode(data: uint8[:], pos, end, out: T[:]) -> (n, pos, error)

Up to ``len(out)`` values from ``data[pos:end]`` go into ``out``; ``n`` were written, ``pos`` is
behind the last byte used, ``error`` is 0 or one of ``codes``. A kernel reads nothing outside
``data[pos:end]`` and writes nothing outside ``out``, and each turn of each of its loops consumes
bytes or writes a value, so it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from common.tsfile import DataType, Encoding

__all__ = [
    "Array",
    "Binaries",
    "Bytes",
    "Decoded",
    "Decoder",
    "Decoders",
    "Kernel",
    "Values",
    "integers",
    "numeric",
]

Bytes: TypeAlias = npt.NDArray[np.uint8]
Array: TypeAlias = npt.NDArray[Any]
Kernel: TypeAlias = Callable[..., tuple[int, int, int]]


@dataclass(frozen=True, slots=True)
class Binaries:
    """Values of TEXT, STRING or BLOB, one behind the other, as Arrow has them.

    Attributes:
        offsets: int32, one more than there are values; each is where a value begins and the last
            one ends.
        data: uint8.
    """

    offsets: npt.NDArray[np.int32]
    data: Bytes

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> bytes:
        return self.data[self.offsets[index] : self.offsets[index + 1]].tobytes()


Values: TypeAlias = Array | Binaries


class Decoded(NamedTuple):
    """What a decoder came to: the values so far, how many, how far it read, and what is wrong."""

    values: Values
    n: int
    pos: int
    error: int


Decoder: TypeAlias = Callable[[Bytes, int, int, int], Decoded]
Decoders: TypeAlias = Mapping[tuple[int, int], Decoder]


def numeric(
    kernel: Kernel, dtype: type[np.generic], view: type[np.generic] | None = None, *more: np.int64
) -> Decoder:
    """Make a decoder of a kernel for numbers.

    Args:
        kernel: of the form above.
        dtype: what it writes.
        view: as what its bits are to be read, for floats that are encoded as integers.
        more: what the kernel takes behind ``out``: the bits of the end, say.
    """

    def decode(data: Bytes, pos: int, end: int, count: int) -> Decoded:
        out: Array = np.empty(count, dtype)
        n, pos, error = kernel(data, pos, end, out, *more)
        return Decoded(out[:n] if view is None else out[:n].view(view), n, pos, error)

    return decode


def integers(encoding: Encoding, narrow: Decoder, wide: Decoder, *, times: bool = True) -> Decoders:
    """The decoders of all that is an integer of 32 (``narrow``) or 64 bits (``wide``).

    Args:
        encoding: of them.
        narrow: of INT32 and DATE.
        wide: of INT64, TIMESTAMP and VECTOR.
        times: whether a column of times, VECTOR, can have the encoding.
    """
    types = dict.fromkeys((DataType.INT32, DataType.DATE), narrow)
    types |= dict.fromkeys((DataType.INT64, DataType.TIMESTAMP), wide)
    if times:
        types[DataType.VECTOR] = wide
    return {(encoding, each): decoder for each, decoder in types.items()}
