"""The directories that the version before the schema left; `tests/data/previous_version.py`."""

from __future__ import annotations

import tarfile
from pathlib import Path

__all__ = ["unpack"]

_ARCHIVE = Path(__file__).parent.parent / "data" / "previous_version.tar.gz"


def unpack(root: Path) -> Path:
    """Put `schema/` and `data/` below a directory, for a `World` of it; returns the directory."""
    with tarfile.open(_ARCHIVE) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # not in Python 3.11.2
        archive.extractall(root)
    return root
