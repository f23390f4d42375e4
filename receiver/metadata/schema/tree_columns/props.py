"""What encoders were told about series: a JSON text, kept once among the names."""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from receiver.metadata.schema.tree_columns.growing_columns import (
    Ints,
    Section,
    reach,
    restore,
    view,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from receiver.metadata.schema.tree_columns.name_table import NameTable

__all__ = ["Props", "props_text"]


class Props:
    """A column by row of a leaf, filled as far as needed: one more than the number of its text."""

    __slots__ = ("_names", "_texts")

    def __init__(self, names: NameTable) -> None:
        self._names = names
        self._texts: Ints = array("i")

    def __len__(self) -> int:
        return len(self._texts)

    def put(self, row: int, props: Mapping[str, str]) -> int:
        """A series has these; gives the bytes of their text."""
        name = self._names.intern(props_text(props))
        reach(self._texts, row + 1, 0)
        self._texts[row] = name + 1
        return self._names.lengths[name]

    def get(self, row: int) -> dict[str, str]:
        """Those of a series."""
        if row >= len(self._texts) or not self._texts[row]:
            return {}
        props: dict[str, str] = json.loads(self._names.text(self._texts[row] - 1))
        return props

    def forget(self, row: int) -> None:
        """A row is no more."""
        if row < len(self._texts):
            self._texts[row] = 0

    def bytes_of(self, rows: NDArray[Any]) -> int:
        """Bytes of the texts of many series."""
        numbers = view(self._texts)[rows[rows < len(self._texts)]]
        return int(view(self._names.lengths)[numbers[numbers > 0] - 1].sum())

    def mark_names(self, used: NDArray[np.bool_]) -> None:
        """Mark the numbers of the texts that are needed here."""
        numbers = view(self._texts)
        used[numbers[numbers > 0] - 1] = True

    # -- checkpoint --

    def sections(self) -> list[Section]:
        """The column by the name of its section."""
        return [("schema.props", self._texts)]

    @classmethod
    def thaw(
        cls, names: NameTable, sections: Mapping[str, memoryview | bytes], *, swap: bool
    ) -> Props:
        """What was frozen."""
        made = cls(names)
        restore(sections, "schema.props", made._texts, swap=swap)
        return made


def props_text(props: Mapping[str, str]) -> str:
    """What is kept of the props of a series: JSON."""
    return json.dumps(props, sort_keys=True, ensure_ascii=False)
