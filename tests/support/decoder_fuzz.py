"""Damaged pages for the decoders, by seed, and what must hold for each of them.

It is decoded to exactly as many values as asked for, or refused by one of our errors; what stands
in front of the page and behind it makes no difference; and it does not take long. The page stands
between two pieces of memory that cannot be read as well: whoever leaves it, dies of SIGSEGV.
"""

from __future__ import annotations

import ctypes
import mmap
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from common.tsfile import DataType, Encoding
from receiver.points.encodings import BadPage, Unsupported, decode_values
from tests.support.encoders.cases import CASES, Case, decoded_list
from tests.support.mutate import mutants

SLOW = 1.0  # seconds of the processor
LENGTHS = (1, 8, 129)
PAGES = 12  # whole pages a case, to be damaged
AROUND = (bytes(range(1, 40)), b"\xff" * 39)


@dataclass
class Outcomes:
    """What came of how many inputs."""

    inputs: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    longest: float = 0.0


def attack(case: Case, inputs: int, seed: int) -> Outcomes:
    """Decode so many damaged pages of one encoding and type.

    Raises:
        AssertionError: something does not hold; the page is in the message.
    """
    found = Outcomes()
    chance = random.Random(f"{case} {seed}")
    pages = [case.encode(values) for values in samples(case, chance)]
    _outcome(case, *_amid(pages[0], b""), 1)  # compiled, if it is not yet
    for page in mutants(pages, inputs, chance.randrange(2**32)):
        count = chance.choice((0, *LENGTHS))
        began = time.thread_time()
        first, second = (_outcome(case, *_amid(page, around), count) for around in AROUND)
        _outcome(case, *WALLS.behind(page), count)
        _outcome(case, *WALLS.before(page), count)
        took = time.thread_time() - began
        said = f"{case}, {count} values of {page.hex()}"
        assert first == second, f"bytes outside of the page count: {said}"
        assert isinstance(first, list) or not first.startswith("at "), f"{first}: {said}"
        assert took < SLOW, f"{took} s: {said}"
        found.inputs += 1
        found.kinds["decoded" if isinstance(first, list) else first.partition(":")[0]] += 1
        found.longest = max(found.longest, took)
    return found


Placed: TypeAlias = tuple[np.ndarray, int, int]


class Walls:
    """Memory between two pages of the processor that cannot be read."""

    def __init__(self, size: int) -> None:
        size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        self._memory = mmap.mmap(-1, size + 2 * mmap.PAGESIZE)
        self._bytes = np.frombuffer(self._memory, np.uint8)
        self._low, self._high = mmap.PAGESIZE, mmap.PAGESIZE + size
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        for wall in (0, self._high):
            assert protect(self._bytes.ctypes.data + wall, mmap.PAGESIZE, 0) == 0

    def behind(self, page: bytes) -> Placed:
        """A page up to the upper wall."""
        return self._place(page, self._high - len(page))

    def before(self, page: bytes) -> Placed:
        """A page from the lower wall on."""
        return self._place(page, self._low)

    def _place(self, page: bytes, at: int) -> Placed:
        self._bytes[at : at + len(page)] = np.frombuffer(page, np.uint8)
        return self._bytes, at, at + len(page)


WALLS = Walls(1 << 20)


def _amid(page: bytes, around: bytes) -> Placed:
    data = np.frombuffer(around + page + around, np.uint8)
    return data, len(around), len(around) + len(page)


def _outcome(case: Case, data: np.ndarray, start: int, end: int, count: int) -> Any:
    """The values, or the reason why not."""
    try:
        values = decode_values(case.encoding, case.data_type, data, start, end, count)
    except BadPage as error:
        return error.reason if start <= error.at <= end else f"at {error.at}, not in the page"
    except Unsupported as error:
        return error.reason
    listed = decoded_list(values)
    assert len(listed) == count, f"{case}: {len(listed)} values, not {count}: {data[start:end]}"
    return listed


# -- pages to damage -------------------------------------------------------------------------------


def samples(case: Case, chance: random.Random) -> Iterator[Sequence[Any]]:
    """Lists of values for the encoder of a case."""
    one = _one(case, chance)
    for index in range(PAGES):
        count = chance.choice(LENGTHS)
        if case.encoding == Encoding.REGULAR:
            start, step = chance.randrange(9), chance.randrange(1, 99)
            some = [at + at // 9 * (index % 2) for at in range(count)]
            yield [start + step * at for at in some]
        elif index % 3 == 0:
            yield [value for _ in range(count // 8 + 1) for value in [one()] * 9][:count]
        else:
            yield [one() for _ in range(count)]


def _one(case: Case, chance: random.Random) -> Callable[[], Any]:
    """What draws a value."""
    size = 31 if case.data_type in (DataType.INT32, DataType.DATE) else 63
    draw: dict[DataType, Callable[[], Any]] = {
        DataType.BOOLEAN: lambda: chance.randrange(2),
        DataType.FLOAT: lambda: float(np.float32(chance.gauss(20, 9))),
        DataType.DOUBLE: lambda: round(chance.gauss(20, 9), chance.choice((0, 2, 17))),
        DataType.TEXT: lambda: chance.randbytes(chance.choice((0, 1, 9))),
    }
    for binary in (DataType.STRING, DataType.BLOB):
        draw[binary] = draw[DataType.TEXT]
    return draw.get(
        case.data_type,
        lambda: chance.randrange(-1, 2) * chance.randrange(2 ** chance.randrange(size)),
    )


def attack_all(inputs: int, seed: int) -> Iterator[tuple[Case, Outcomes]]:
    """Share so many inputs among all cases."""
    for case in CASES:
        yield case, attack(case, -(-inputs // len(CASES)), seed)
