"""TsFiles of no receiver: those that `--path` names."""

from __future__ import annotations

import glob
from pathlib import Path
from typing import TYPE_CHECKING

from common.errors import UsageError
from common.names import Kind
from receiver.spark.work import Expected

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["find_files"]


def find_files(patterns: Sequence[str]) -> list[Expected]:
    """The files of directories (with all below), of globs, or named one by one; each once.

    Raises:
        UsageError: nothing is there.
    """
    found: dict[str, Expected] = {}
    for pattern in patterns:
        if not pattern:  # a variable that is not set; as a path it would be this directory
            raise UsageError("--path '': expected a directory, a file or a glob")
        before = len(found)
        for path in _matches(pattern):
            found.setdefault(str(path), _expected(path))
        if len(found) == before and not any(_matches(pattern)):
            raise UsageError(
                f"--path {pattern}: no TsFile; expected a directory with *.tsfile below it, a "
                "file, or a glob"
            )
    return [found[path] for path in sorted(found)]


def _matches(pattern: str) -> Iterator[Path]:
    given = Path(pattern)
    if given.is_dir():
        yield from _below(given)
    elif given.exists():
        yield given
    else:
        for each in glob.iglob(pattern, recursive=True):
            path = Path(each)
            if path.is_dir():
                yield from _below(path)
            else:
                yield path


def _below(directory: Path) -> Iterator[Path]:
    return (each for each in directory.rglob("*.tsfile") if not each.is_dir())


def _expected(path: Path) -> Expected:
    """What the path tells, where it is laid out as a database does: kind and storage group."""
    parts = path.absolute().parts
    for at in range(len(parts) - 3, 0, -1):
        if parts[at] in (Kind.SEQUENCE, Kind.UNSEQUENCE):
            return Expected(str(path), database=parts[at + 1], kind=parts[at])
    return Expected(str(path))
