"""Compiled code: the one decorator for kernels, and where their machine code is kept.

    @kernel
    def total(values): ...

Numba compiles a kernel at its first call with new types of arguments, which takes half a second
to two for each, so what was compiled is kept for the next process: it loads one in 10 ms. Habits
that keep it little: bytes are handed in as read-only arrays (made by ``readonly``), because a
writable one is another type to numba; floats are decoded as the integers of their bits; positions
are int64 at every call; and loops stand where a slice would be assigned to.

Numba's own cache is not used as it stands, for what it lacks:

- It does not see that a kernel of another module, which was compiled into this one, has changed.
  Here the stamp is a digest over the sources of a kernel and of every kernel it calls. It is
  part of the files' names: two versions that run at once cannot mix up their code.
- A package that cannot be written to, and no home either, is an error when it is imported. Here
  the places are: ``NUMBA_CACHE_DIR``; ``__pycache__`` beside the source (also when it can only be
  read, and was filled before); ``$XDG_CACHE_HOME`` or ``~/.cache``; a directory of ours in the
  place for temporary files. Where none of them is good, code is compiled again by each process.
- What is kept is loaded and run. A directory in a shared place counts only if it is a real
  directory of this user that nobody else can write to.
- A full disk or a file that a power cut left empty is an exception in the middle of a call. Here
  it is a cache miss.

Kernels release the interpreter's lock. None of them reads outside of the bytes it was given nor
writes outside of its output: numba does not check that in compiled code, so each loop here does.
``NUMBA_BOUNDSCHECK=1`` makes numba check as well (tests do).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeAlias, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt
from numba.core import config
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator

__all__ = ["Number", "kernel", "readonly"]

Function = TypeVar("Function", bound=Callable[..., Any])
Scalar = TypeVar("Scalar", bound=np.generic)

Number: TypeAlias = Any
"""A number within a kernel. Which integer it is, numba knows; the type checker need not."""

_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


def kernel(function: Function) -> Function:
    """Compile a function when it is first called; keep the code where there is a place for it."""
    compiled = numba.njit(nogil=True, error_model="numpy")(function)
    if hasattr(compiled, "py_func"):  # it is the bare function with NUMBA_DISABLE_JIT
        with contextlib.suppress(RuntimeError, OSError):  # no good place, or no source
            compiled._cache = _Cache(function)
    return cast(Function, compiled)


def readonly(data: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    """The same array as one that cannot be written to: one type for all kernels."""
    if not data.flags.writeable:
        return data
    view = data.view()
    view.flags.writeable = False
    return view


class _Locator(_CacheLocator):  # type: ignore[misc]
    """Where the code of one kernel is kept, and the digest of what it was made from."""

    def __init__(self, function: Callable[..., Any], directory: Path) -> None:
        self._directory = directory
        self._line = function.__code__.co_firstlineno
        self._stamp = _stamp(function)

    def get_cache_path(self) -> str:
        return str(self._directory)

    def get_source_stamp(self) -> str:
        return self._stamp

    def get_disambiguator(self) -> str:
        return f"{self._line}-{self._stamp[:16]}"

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> _Locator | None:
        directory = _place(Path(file).parent)
        return None if directory is None else cls(function, directory)


class _Impl(CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = (_Locator,)


class _Cache(FunctionCache):  # type: ignore[misc]
    """A cache of which every failure is a miss."""

    _impl_class = _Impl

    def load_overload(self, *arguments: Any) -> Any:
        try:
            return super().load_overload(*arguments)
        except Exception:  # a damaged file raises whatever pickle makes of it
            with contextlib.suppress(OSError):
                self.flush()  # an empty index takes the place of this one
            return None

    def save_overload(self, *arguments: Any) -> None:
        try:
            super().save_overload(*arguments)
        except Exception:
            self.disable()


@functools.cache
def _place(source: Path) -> Path | None:
    """The first good directory for the kernels of the modules in a directory."""
    for directory, shared in _places(source, os.environ):
        try:
            if _is_good(directory, shared=shared):
                return directory
        except OSError:
            continue
    return None


def _places(source: Path, environment: Any) -> Iterator[tuple[Path, bool]]:
    """Directories to try, each with whether others may get at its parents."""
    below = f"{source.name}-{hashlib.sha256(bytes(source)).hexdigest()[:16]}"
    if environment.get("NUMBA_CACHE_DIR"):
        yield Path(environment["NUMBA_CACHE_DIR"]) / below, False
    yield source / "__pycache__", False
    if environment.get("XDG_CACHE_HOME"):
        yield Path(environment["XDG_CACHE_HOME"]) / "tsferry" / below, True
    elif environment.get("HOME"):
        yield Path(environment["HOME"]) / ".cache" / "tsferry" / below, True
    temporary = environment.get("TMPDIR") or "/var/tmp"  # noqa: S108, it is seen to be ours
    yield Path(temporary) / f"tsferry-{os.getuid()}" / below, True


def _is_good(directory: Path, *, shared: bool) -> bool:
    """Whether code may be kept in, and loaded from, a directory. Makes it if need be."""
    if not shared:
        if any(directory.glob("*.nbi")):
            return True
        _Maker(directory).ensure_cache_path()
        return True
    parent = directory.parent
    _Maker(parent).ensure_cache_path()
    if not _is_ours(parent):
        return False
    _Maker(directory).ensure_cache_path()
    return _is_ours(directory)


def _is_ours(directory: Path) -> bool:
    """Whether it is a real directory of this user; if so, others are shut out."""
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        return False
    if found.st_mode & _OTHERS_WRITE:
        return False
    directory.chmod(0o700)
    return True


class _Maker(_Locator):
    """Numba's way to make a directory and see that it can be written to."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory


def _stamp(function: Callable[..., Any]) -> str:
    """A digest over the sources of a kernel and all it calls, and over how it is compiled."""
    digest = hashlib.sha256(f"{config.BOUNDSCHECK} {config.OPT}".encode())
    for path in sorted(_sources(function, set())):
        digest.update(_file_digest(path))
    return digest.hexdigest()


def _sources(function: Callable[..., Any], seen: set[Callable[..., Any]]) -> set[str]:
    """The files of a function and of the kernels and intrinsics that it names."""
    if function in seen:
        return set()
    seen.add(function)
    code, scope = function.__code__, function.__globals__
    found = {code.co_filename}
    named = [scope[name] for name in code.co_names if name in scope]
    named += [
        getattr(module, name, None)
        for module in named
        if isinstance(module, ModuleType)
        for name in code.co_names
    ]
    for each in named:
        inner = getattr(each, "py_func", None) or getattr(each, "_defn", None)
        if inner is not None:
            found |= _sources(inner, seen)
    return found


@functools.cache
def _file_digest(path: str) -> bytes:
    """Of the file, or of the archive that a module was imported from."""
    file = Path(path)
    while not file.is_file() and file != file.parent:
        file = file.parent
    return hashlib.sha256(file.read_bytes()).digest()
