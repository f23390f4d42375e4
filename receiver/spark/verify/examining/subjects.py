"""The files of a run, and their neighbours: what each is expected to show, and where it stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from receiver.metadata.model.ranks import cut_in, rank_in
from receiver.spark.verify.examining.parts import Expected

if TYPE_CHECKING:
    from collections.abc import Sequence

    from receiver.metadata.model.ranks import Rank, TransferCut

__all__ = ["Neighbours", "Subject"]


@dataclass(frozen=True, slots=True)
class Subject:
    """A file of the run.

    Attributes:
        expected: what is known of it.
        size: its bytes, as far as they are known.
        current: whether it is compared with other files.
        rank: where it stands among files that overlap it.
        sender: whose it is; "" for a file of no receiver.
        cuts: where it stands otherwise, in devices that were transferred.
    """

    expected: Expected
    size: int
    current: bool = True
    rank: Rank | None = None
    sender: str = ""
    cuts: tuple[TransferCut, ...] = ()

    def rank_in(self, device: str) -> Rank | None:
        """Where it stands in a device."""
        return None if self.rank is None else rank_in(self.rank, cut_in(self.cuts, device))


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Files that are not read, and what the catalogue has of their devices.

    Attributes:
        files: numbered on from the files of the run.
        spans: of them, with numbers of their own from 0 on (`part_rows.span_schema`).
    """

    files: Sequence[Subject]
    spans: pa.Table

    def spans_from(self, number: int) -> pa.Table:
        """The spans, numbered on from a number."""
        shifted = pc.add(self.spans["file"], pa.scalar(number, pa.int32()))
        return self.spans.set_column(0, "file", shifted)
