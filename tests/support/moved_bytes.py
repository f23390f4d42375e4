"""Bytes in data directories, against what was acknowledged: nothing of the receiver is asked.

A ledger says which content was acknowledged as loaded under which path. What counts is that each is
somewhere on the disks, whole, under a name that a loaded file may have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

__all__ = ["contents", "lost_of", "places_of"]


def contents(root: Path) -> dict[str, bytes]:
    """Name -> bytes of what lies where loaded files lie in a data directory."""
    return {
        each.relative_to(root).as_posix(): each.read_bytes()
        for kind in ("sequence", "unsequence")
        for each in sorted((root / kind).rglob("*"))
        if each.is_file()
    }


def places_of(roots: Iterable[Path], path: str, content: bytes) -> list[Path]:
    """Where a content lies whole, under a name that the file of a path may have."""
    stem = path.removesuffix(".tsfile")
    return [
        root / name
        for root in roots
        for name, found in contents(root).items()
        if name.startswith(f"{stem}.") and name.endswith(".tsfile") and found == content
    ]


def lost_of(roots: Iterable[Path], ledger: Mapping[str, bytes]) -> list[str]:
    """What was acknowledged and is nowhere."""
    several = list(roots)
    return [path for path, content in ledger.items() if not places_of(several, path, content)]
