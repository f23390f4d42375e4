"""Checkpoints of a bare state, and files that are packed as a checkpoint packs them."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from receiver.metadata.log.freeze import freeze, thaw

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from receiver.metadata.state.state import State

__all__ = ["as_is", "frozen_sections", "pack", "thawed"]


def frozen_sections(state: State) -> dict[str, bytes]:
    """What a checkpoint of a state holds."""
    frozen = freeze(state, lsn=1, commits=array("Q"), tags_end=0, segment=1, oldest=0)
    return {name: bytes(content) for name, content in frozen.sections()}


def as_is(sections: dict[str, bytes]) -> dict[str, bytes]:
    """The same sections."""
    return sections


def thawed(sections: Mapping[str, bytes]) -> State:
    """The state that a start makes of them."""
    return thaw({name: memoryview(content) for name, content in sections.items()}).state


def pack(state: State, meanwhile: Callable[[], object] = lambda: None) -> None:
    """Pack what can be packed, as it happens behind a checkpoint.

    Args:
        state: whose files are packed.
        meanwhile: what is committed between the copy and the packing.
    """
    table = state.file_table
    frozen = table.freeze()
    packed = frozen.rows.pack()
    meanwhile()
    table.adopt(frozen, packed)
    table.be_packed(zip(packed.numbers, packed.rows, strict=True))
    table.shrink()
