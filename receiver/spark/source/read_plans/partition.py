"""What one task of a query reads, as Spark carries it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

if TYPE_CHECKING:
    from receiver.spark.source.read_plans.overlapping import MergeSlice
    from receiver.spark.source.read_plans.slicing import Slice

__all__ = ["TsFilePartition"]


@dataclass(frozen=True)
class TsFilePartition(InputPartition):
    """What one task reads."""

    slices: tuple[Slice | MergeSlice, ...]
