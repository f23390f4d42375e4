"""TsFiles that others wrote, where a checkout has them beside it; tests pass without them."""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "tsfiles"


def real_file(name: str) -> bytes:
    """The content of one of them; skips the test where there is none."""
    path = FOLDER / name
    if not path.is_file():
        pytest.skip(f"no {name} beside this checkout")
    return path.read_bytes()


def real_names() -> list[str]:
    """All there are, perhaps none."""
    return sorted(path.name for path in FOLDER.glob("*.tsfile"))
