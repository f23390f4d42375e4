"""What both configurations have: rules, and the units of the data's timestamps."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from common.config.loaded_values import ConfigFinding

__all__ = ["PER_MILLISECOND", "TimeUnit", "overlapping", "whole_milliseconds"]

TimeUnit = Literal["ms", "us", "ns"]
"""Of the timestamps in the data."""
PER_MILLISECOND: Mapping[str, int] = {"ms": 1, "us": 1_000, "ns": 1_000_000}
"""How many of each `TimeUnit` a millisecond has."""


def overlapping(key: str, directories: Sequence[Path]) -> Iterator[ConfigFinding]:
    """Directories that are the same or one inside the other, links resolved."""
    real = [Path(os.path.realpath(directory)) for directory in directories]
    for number, one in enumerate(real):
        for other in real[:number]:
            if one.is_relative_to(other) or other.is_relative_to(one):
                yield ConfigFinding(key, f"expected apart from each other: {one} and {other}")


def whole_milliseconds(key: str, seconds: float) -> Iterator[ConfigFinding]:
    """Both ends number partitions by milliseconds: a part of one would be rounded unseen."""
    if abs(seconds * 1000 - round(seconds * 1000)) > 1e-6:
        yield ConfigFinding(key, "expected whole milliseconds")
