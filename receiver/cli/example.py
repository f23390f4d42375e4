"""The commented configuration that `init` starts from."""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import Sequence
from pathlib import Path

__all__ = ["configuration"]

_NAME = "receiver.toml"


def configuration(schema_dir: str, data_dirs: Sequence[str]) -> str:
    """The example with these directories."""
    lines = []
    for line in _example().splitlines():
        if line.startswith("schema_dir ="):
            line = f"schema_dir = {_quoted(schema_dir)}"
        elif line.startswith("data_dirs ="):
            line = f"data_dirs = [{', '.join(map(_quoted, data_dirs))}]"
        lines.append(line)
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    # A JSON string of ASCII is a TOML basic string: the escapes are the same.
    return json.dumps(text)


def _example() -> str:
    packaged = importlib.resources.files("receiver").joinpath(_NAME)
    if packaged.is_file():
        return packaged.read_text(encoding="utf-8")
    return (Path(__file__).parents[2] / "conf" / _NAME).read_text(encoding="utf-8")
