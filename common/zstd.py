"""Zstandard (RFC 8878), where this Python has it: the standard library from 3.14 on, or a package.

An edge box needs no package for it: without, bodies travel as they are. So nothing here is imported
before it is asked for, and what is missing is None.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

__all__ = ["PACKAGE", "ZSTD", "codec"]

ZSTD = "zstd"
"""The name in `Content-Encoding` (RFC 8878, 7.2)."""
PACKAGE = "tsferry[zstd]"
"""What to install where the standard library has none."""

_MODULE = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"


def codec() -> Any:
    """The module, the same by either name; None where there is none."""
    try:
        return importlib.import_module(_MODULE)
    except ImportError:
        return None
