"""The columns of the schema together, their checkpoint, and what history lets go of."""

from __future__ import annotations

import json
import mmap
import sys
from array import array
from collections.abc import Mapping
from typing import Final, Self

import numpy as np

from common.errors import DamagedError
from receiver.metadata.schema.columns import Ints, Section, Versions, restore, view
from receiver.metadata.schema.freeze import Frozen, size_of
from receiver.metadata.schema.heat import Heat
from receiver.metadata.schema.history import NODE, OFFSET, POSTING, Ended
from receiver.metadata.schema.tagindex import TagIndex
from receiver.metadata.schema.tree import FREE, KIND, LEAF, Tree

__all__ = ["Tables"]

_VERSION: Final = 1
_FEW_NAMES: Final = 1024
_TOTALS: Final = ("_series", "_devices", "_groups", "_memory")


class Tables:
    """All that the schema keeps.

    Attributes:
        tree: nodes.
        index: tag key -> value -> series.
        offsets: where tags and attributes of a leaf's row are in the tag log.
        ttls: TTL of a storage group, by its place among inner nodes; -1 for ever.
        heats: newest time loaded, by leaf's row.
        ended: what history may collect, in order.
        props: of a leaf's row, one more than the number of its text, 0 for none; filled as far as
            needed.
    """

    def __init__(self) -> None:
        self.tree = Tree()
        self.index = TagIndex(self.tree.names)
        self.offsets = Versions()
        self.ttls = Versions()
        self.heats = Heat(self.tree)
        self.ended = Ended()
        self.props: Ints = array("i")
        self._series = 0
        self._devices = 0
        self._groups = 0
        self._memory = 0
        self._unnamed = 0

    @property
    def series_count(self) -> int:
        """Series that live now."""
        return self._series

    @property
    def device_count(self) -> int:
        """Devices that live now."""
        return self._devices

    @property
    def storage_group_count(self) -> int:
        """Storage groups that live now."""
        return self._groups

    def memory(self) -> int:
        """Bytes that what lives now is estimated to take: a function of that content alone."""
        return self._memory

    # -- history ----------------------------------------------------------------------------------

    def collect(self, horizon: int, budget: int = 10_000) -> int:
        """Drop what no question at `horizon` or later can see, at most `budget` pieces of it.

        Returns:
            how many went; 0: nothing is left to collect.
        """
        count = 0
        for kind, what in self.ended.take(horizon, budget):
            count += 1
            if kind == NODE:
                self._drop(what)
            elif kind == POSTING:
                self.index.drop(what)
                self._unnamed += 1
            elif kind == OFFSET:
                self.offsets.drop(what)
            else:
                self.ttls.drop(what)
        count += self.heats.trim(horizon)
        # Looking for names that nobody has any more looks at all rows: only now and then.
        if self._unnamed > max(_FEW_NAMES, self.tree.names.used // 4):
            self._release_names()
        return count

    def _drop(self, row: int) -> None:
        tree = self.tree
        if tree.kind[row] & KIND < LEAF:
            self.ttls.forget(tree.ref[row])
        self.offsets.forget(row)
        self.heats.forget(row)
        if row < len(self.props):
            self.props[row] = 0
        tree.drop(row)
        self._unnamed += 1

    def _release_names(self) -> None:
        tree = self.tree
        self.index.purge()
        used = np.zeros(len(tree.names), bool)
        used[view(tree.name)[view(tree.kind) != FREE]] = True
        props = view(self.props)
        used[props[props > 0] - 1] = True
        self.index.mark_names(used)
        tree.names.release(used)
        self._unnamed = 0

    # -- checkpoint -------------------------------------------------------------------------------

    def frozen_bytes(self) -> int:
        """What a frozen copy takes now: for the `room` that `freeze` needs."""
        return sum(size_of(part) for _, part in self._sections())

    def freeze(self, room: bytearray | mmap.mmap | None = None) -> Frozen:
        """A copy of all that is here; `Frozen.sections` gives it out later.

        Args:
            room: for the copy (`receiver.metadata.schema.freeze.room`); what does not fit into it
                gets memory of its own, which takes two or three times as long.
        """
        return Frozen.copy(self._sections(), bytearray() if room is None else room)

    def _sections(self) -> list[Section]:
        head = {
            "version": _VERSION,
            "byteorder": sys.byteorder,
            "unnamed": self._unnamed,
            "totals": [getattr(self, name) for name in _TOTALS],
        }
        return [
            ("schema.head", json.dumps(head).encode()),
            *self.tree.sections(),
            *self.index.sections(),
            *self.offsets.sections("offsets"),
            *self.ttls.sections("ttls"),
            *self.heats.sections(),
            *self.ended.sections(),
            ("schema.props", self.props),
        ]

    @classmethod
    def thaw(cls, sections: Mapping[str, memoryview | bytes]) -> Self:
        """What was frozen.

        Raises:
            DamagedError: the sections do not fit together.
        """
        made = cls()
        try:
            head = json.loads(bytes(sections["schema.head"]))
            version, order = head["version"], head["byteorder"]
            for name, value in zip(_TOTALS, head["totals"], strict=True):
                setattr(made, name, int(value))
            made._unnamed = int(head["unnamed"])
        except (KeyError, ValueError, TypeError) as error:
            raise DamagedError(f"the schema's section 'schema.head' is damaged: {error}") from error
        if version != _VERSION:
            raise DamagedError(f"the schema is of version {version}, expected {_VERSION}")
        swap = order != sys.byteorder
        made.tree = Tree.thaw(sections, swap=swap)
        made.index = TagIndex.thaw(made.tree.names, sections, swap=swap)
        made.offsets = Versions.thaw("offsets", sections, swap=swap)
        made.ttls = Versions.thaw("ttls", sections, swap=swap)
        made.heats = Heat.thaw(made.tree, sections, swap=swap)
        made.ended = Ended.thaw(sections, swap=swap)
        restore(sections, "schema.props", made.props, swap=swap)
        return made
