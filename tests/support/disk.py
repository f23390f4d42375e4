"""What tests need to look at a disk door from outside: open descriptors, calls that fail."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from common import beneath, durable

CHANGING = ("write", "pwrite", "fsync", "fdatasync", "ftruncate")
"""What changes content."""
NAMING = ("rename", "link", "unlink", "mkdir", "rmdir")
"""What changes names."""
LOOKING = ("fstat", "stat", "pread", "listdir")


def descriptors() -> set[str]:
    """The open descriptors of this process, with what they point to."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add(f"{name} -> {os.readlink(f'/proc/self/fd/{name}')}")
        except OSError:  # the one of this listing itself
            continue
    return found


@contextmanager
def no_leak() -> Iterator[None]:
    """Fail if the block leaves a descriptor open."""
    before = descriptors()
    yield
    assert descriptors() - before == set()


class Faults:
    """Makes the n-th call of some functions of `os` fail, or all from the n-th on."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self.calls: list[str] = []
        self._error: Callable[[], OSError] | None = None
        self._at = 0
        self._once = True
        self._names: frozenset[str] = frozenset()
        for name in (*CHANGING, *NAMING, *LOOKING):
            self._wrap(os, name, name)
        self._wrap(beneath, "_openat2", "open")
        self._wrap(beneath, "_walk", "open")
        self._wrap(beneath, "_rename_noreplace", "renameat2")

    def _wrap(self, module: object, attribute: str, name: str) -> None:
        real = getattr(module, attribute)

        def wrapped(*args: object, **kwargs: object) -> object:
            self._count(name)
            return real(*args, **kwargs)

        self._patch.setattr(module, attribute, wrapped)

    def _count(self, name: str) -> None:
        if name not in self._names:
            return
        self.calls.append(name)
        if self._error is None:
            return
        here = len(self.calls)
        if here == self._at or (here > self._at and not self._once):
            raise self._error()

    def watch(self, *names: str) -> None:
        """Count calls of these functions from now on; none fails."""
        self.calls, self._error, self._names = [], None, frozenset(names)

    def fail(self, code: int, at: int, *names: str, once: bool = True) -> None:
        """From now on the `at`-th call of any of these functions fails with `code`."""
        self.watch(*names)
        self._error = lambda: OSError(code, os.strerror(code))
        self._at, self._once = at, once

    def off(self) -> None:
        """Nothing fails any more."""
        self._names = frozenset()


def heal(patch: pytest.MonkeyPatch) -> None:
    """What a restart does for the memory of a failed sync."""
    patch.setattr(durable.flushing, "_failure", None)
