"""What all tasks of a query share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from common import __version__
from receiver.spark.source.read_plans.picking import Picker

if TYPE_CHECKING:
    from receiver.spark.source.read_plans.result_columns import ResultColumn
    from receiver.spark.source.read_plans.selection import Selection
    from receiver.spark.source.read_plans.source_options import SourceOptions

__all__ = ["ReadPlan"]


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What all tasks of a query share; it is pickled.

    Attributes:
        options: of the source.
        selection: options and filters together.
        columns: of the result, in order.
        version: of tsferry, where it was made.
    """

    options: SourceOptions
    selection: Selection
    columns: tuple[ResultColumn, ...]
    version: str = __version__

    def __reduce__(self) -> tuple[type[ReadPlan], tuple[object, ...]]:
        """Without the token: tasks read by that of their own environment."""
        kept = replace(self.options, token=None)
        return ReadPlan, (kept, self.selection, self.columns, self.version)

    def picker(self) -> Picker:
        """What is wanted of the files."""
        return Picker(self.options, self.selection)
