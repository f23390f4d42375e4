"""What a file has to be at before it may leave the data directories: a store, or storage nodes."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from concurrent.futures import Executor

    from common.names import FilePath
    from receiver.metadata.state.state import State

__all__ = ["EvictionPlace", "PlaceWord"]


class PlaceWord(Enum):
    """What a place says of a file that is to leave."""

    SURE = "it is there as it was loaded"
    DOUBTFUL = "it is not there as it should be"
    UNKNOWN = "nobody has said"


class EvictionPlace(Protocol):
    """Who has files that may leave the data directories."""

    def may_go(self, state: State, physical: str) -> bool:
        """Whether all that is known here says that a file may leave the disk."""

    def begin(self) -> None:
        """Called before files are asked for.

        Raises:
            FencedError: another receiver has taken over.
            StoreAwayError, StoreRefusedError: of the store.
        """

    def confirmed(self, physicals: Sequence[str], pool: Executor) -> Iterable[PlaceWord]:
        """Of each file, in their order, whether it is there now; by a question that is new.

        Args:
            physicals: that may go.
            pool: may be used to ask.

        Raises:
            StoreAwayError, StoreRefusedError: of the store.
        """

    def may_leave(self, state: State, physical: str) -> bool:
        """Whether what was confirmed holds still, at the moment in which a file leaves."""

    def leaving(self, path: FilePath) -> Sequence[str]:
        """Names that leave the data directories, the TsFile's first."""
