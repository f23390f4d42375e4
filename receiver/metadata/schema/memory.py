"""What series and storage groups are estimated to take, for the memory limit.

The estimate is a sum over what lives now, so it comes out the same after any deletion, collection
or restart. History, free rows and the heads of the columns are not in it: history has its window,
and freed rows are used again. The figures are the columns' bytes, their slack included; a name is
counted for each node that has it, though it is kept once.
"""

from __future__ import annotations

from typing import Final

__all__ = ["ALIAS_BYTES", "INNER_BYTES", "LEAF_BYTES", "TAG_BYTES"]

LEAF_BYTES: Final = 56
"""A series: a row of 41 bytes with its slot, heat, and what grows ahead of need."""
INNER_BYTES: Final = 100
"""A storage group, a device, or a node above: a row, its place, its name's columns."""
ALIAS_BYTES: Final = 60
"""An alias: a row, and two links."""
TAG_BYTES: Final = 96
"""A tag of a series: its posting, its place in the order, its part of the series' place in the tag
log. Where values are shared by many series it takes some 60, a value of its own takes 150."""
