"""Copies that the master has found to have other bytes, kept for its next start.

Most of them the node finds as well, by itself, and tells with every full report. One that calls
them good is counted again by nobody's word but bytes that were compared; without this file a
restart of the master would be such a word.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import msgspec

from common.decoders import from_json
from common.durable import Tree
from common.errors import TsferryError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["WHOLE_TABLET", "DoubtedOfNode", "KeptDoubts"]

log = logging.getLogger(__name__)

_FILE: Final = "doubted-copies.json"
_MOST: Final = 1000
"""Files of a node: all are written anew with each that comes or goes. Of one with more, whose disk
is bad perhaps, it is their tablets that are kept."""
WHOLE_TABLET: Final = ""
"""In the place of a file: all of the tablet."""


class DoubtedOfNode(msgspec.Struct, frozen=True, kw_only=True):
    """What a start of a node does not count for.

    Attributes:
        boot: random id of the start.
        files: (tablet, physical name) of each; `WHOLE_TABLET` for all of a tablet.
    """

    boot: str
    files: list[tuple[str, str]]


class _Content(msgspec.Struct, frozen=True, kw_only=True):
    v: int = 1
    nodes: dict[str, DoubtedOfNode]


class KeptDoubts:
    """The file; one thread at a time writes."""

    def __init__(self, directory: Path) -> None:
        """Keep it in a directory: the schema directory of the master."""
        self._directory = directory
        self._written = b""

    def read(self) -> dict[str, DoubtedOfNode]:
        """What was kept, by the uuid of the node; what cannot be read is none, and is said so."""
        try:
            with Tree(self._directory) as home:
                return from_json(home.read(_FILE), _Content).nodes
        except FileNotFoundError:
            return {}
        except (msgspec.MsgspecError, UnicodeDecodeError, OSError, TsferryError) as error:
            told = {"file": _FILE, "error": str(error)}
            log.warning("which copies were doubted is not known any more", extra=told)
            return {}

    def write(self, nodes: dict[str, DoubtedOfNode]) -> None:
        """Keep these in place of all before; on the disk when this returns, unless it is full."""
        some = {
            uuid: msgspec.structs.replace(each, files=_of_tablets(each.files))
            for uuid, each in nodes.items()
        }
        content = msgspec.json.encode(_Content(nodes=some))
        if content == self._written:
            return
        try:
            with Tree(self._directory) as home:
                home.write_atomic(_FILE, content)
            self._written = content
        except (OSError, TsferryError) as error:  # they are known until the next start
            told = {"file": _FILE, "error": str(error)}
            log.warning("which copies are doubted is not kept", extra=told)


def _of_tablets(files: list[tuple[str, str]]) -> list[tuple[str, str]]:
    if len(files) <= _MOST:
        return files
    return [(each, WHOLE_TABLET) for each in sorted({tablet for tablet, _ in files})]
