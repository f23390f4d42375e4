"""Directories that earlier versions left; `tests/data/*.py` say how they were made."""

from __future__ import annotations

import os
import tarfile
from decimal import Decimal
from pathlib import Path

__all__ = ["unpack"]

_DATA = Path(__file__).parent.parent / "data"


def unpack(root: Path, archive: str = "previous_version") -> Path:
    """Put the content of an archive below a directory; returns the directory."""
    with tarfile.open(_DATA / f"{archive}.tar.gz") as opened:
        opened.extraction_filter = getattr(tarfile, "data_filter", None)  # not in Python 3.11.2
        opened.extractall(root)
        for member in opened.getmembers():
            if "mtime" in member.pax_headers:  # `extractall` has it as a float
                at = int(Decimal(member.pax_headers["mtime"]) * 10**9)
                os.utime(root / member.name, ns=(at, at))
    return root
