"""A local directory, or a mounted one, as an object store: ``file:///path``.

An object is a file whose path is its key. What its writer said of it lies beside it, in
``<path>.meta``, and is there first. A file is written under a
temporary name, flushed, and moved to its own without replacing another (`common.durable`), so an
object is there whole or not at all, and one of two writers wins.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from common.decoders import from_json
from common.digests import read_blocks
from common.durable import Tree, is_temporary, temporary_name
from common.errors import DamagedError, NameRefusedError, NoSpaceError, ReadOnlyError
from receiver.storage.stores.object_content import ObjectContent, checked_blocks
from receiver.storage.stores.object_store import (
    Fingerprint,
    ObjectExistsError,
    ObjectMissingError,
    StoreAwayError,
    StoredObject,
    StoreForbiddenError,
    StoreFullError,
    StoreMissingError,
    StoreReadOnlyError,
    StoreRefusedError,
    Unfinished,
)

__all__ = ["DirectoryStore"]

_ABOUT = ".meta"
"""Short: behind the longest key that a copy has it is a name of 255 bytes."""
_MAX_ABOUT = 1 << 16


class DirectoryStore:
    """Objects as files below a directory, which must be there.

    It knows no digest of what it keeps, so what was put is read back to be believed.

    Args:
        path: of the directory.

    Raises:
        StoreRefusedError: it is not there, or is none.
    """

    knows_digests = tells_many = False
    encryption: str | None = None

    def __init__(self, path: Path) -> None:
        self.url = path.as_uri()
        self._path = path
        self._trees: list[tuple[Tree, tuple[int, int]]] = []
        self.requests: Mapping[str, int] = {}
        with _means(self.url):
            _ = self._tree

    @property
    def _tree(self) -> Tree:
        """The directory that is at the path now: what is mounted there comes and goes."""
        found = os.stat(self._path)
        identity = found.st_dev, found.st_ino
        for tree, known in list(self._trees):
            if known == identity:
                return tree
        made = Tree(self._path)
        self._trees.append((made, identity))  # others may still be at work in the one before
        return made

    def put(self, key: str, data: bytes) -> Fingerprint:
        """See `ObjectStore.put`."""
        with _means(self.url):
            self._write(self._tree, key, iter((data,)))
        return Fingerprint(len(data), {})

    def upload(
        self,
        key: str,
        content: ObjectContent,
        about: Mapping[str, str],
        *,
        resume: str | None = None,
        began: Callable[[str], None] = lambda _: None,
        paced: Callable[[int], None] = lambda _: None,
    ) -> Fingerprint:
        """See `ObjectStore.upload`; an attempt that was cut off begins anew."""
        with _means(self.url):
            tree = self._tree
            if tree.exists(_path(key)):
                raise ObjectExistsError(f"{self.url}: {key} is there")
            if about:
                _make_folder(tree, key)
                tree.write_atomic(_path(key) + _ABOUT, msgspec.json.encode(dict(about)))
            try:
                self._write(tree, key, checked_blocks(content, paced))
            finally:
                if about and not tree.exists(_path(key)):
                    tree.unlink(_path(key) + _ABOUT)
        return Fingerprint(content.size, {})

    def head(self, key: str) -> StoredObject:
        """See `ObjectStore.head`."""
        path = _path(key)
        with _means(self.url):
            found = self._tree.stat(path)
            if found is None or not stat.S_ISREG(found.st_mode):
                raise ObjectMissingError(f"{self.url}: {key} is not there")
            about = self._about(path)
        return StoredObject(key, found.st_size, found.st_mtime, about=about)

    def agrees(self, key: str, expected: Fingerprint) -> bool | None:
        """See `ObjectStore.agrees`."""
        return self.head(key).agrees(expected)

    def agreeing(self, expected: Mapping[str, Fingerprint]) -> set[str]:
        """See `ObjectStore.agreeing`."""
        del expected
        return set()

    def read(self, key: str, offset: int, length: int) -> bytes:
        """See `ObjectStore.read`."""
        with _means(self.url):
            try:
                fd = self._tree.open_read(_path(key))
            except FileNotFoundError:
                raise ObjectMissingError(f"{self.url}: {key} is not there") from None
            try:
                return b"".join(read_blocks(fd, start=offset, end=offset + length))
            finally:
                os.close(fd)

    def objects(self, prefix: str, *, after: str = "") -> Iterator[StoredObject]:
        """See `ObjectStore.objects`."""
        folder = prefix.rpartition("/")[0]
        with _means(self.url):
            for key, found in self._beneath(folder):
                if key.startswith(prefix) and key.encode() > after.encode():
                    yield StoredObject(key, found.st_size, found.st_mtime)

    def remove(self, key: str) -> None:
        """See `ObjectStore.remove`."""
        path = _path(key)
        with _means(self.url):
            self._tree.unlink(path)
            self._tree.unlink(path + _ABOUT)

    def unfinished(self, prefix: str) -> Iterator[Unfinished]:
        """See `ObjectStore.unfinished`: files under temporary names, of whatever key."""
        folder = prefix.rpartition("/")[0]
        with _means(self.url):
            for name, found in self._files(folder):
                if is_temporary(name.rpartition("/")[2]):
                    yield Unfinished(name.rpartition("/")[0] + "/", name, found.st_mtime)

    def abandon(self, attempt: Unfinished) -> None:
        """See `ObjectStore.abandon`."""
        with _means(self.url):
            self._tree.unlink(attempt.ident)

    def close(self) -> None:
        """See `ObjectStore.close`."""
        for tree, _ in self._trees:
            tree.close()

    def _write(self, tree: Tree, key: str, pieces: Iterator[bytes]) -> None:
        folder = _make_folder(tree, key)
        temporary = f"{folder}/{temporary_name()}" if folder else temporary_name()
        try:
            with tree.create(temporary) as file:
                for piece in pieces:
                    file.write(piece)
                file.sync()
            tree.rename(temporary, _path(key), replace=False)
        except FileExistsError:
            raise ObjectExistsError(f"{self.url}: {key} is there") from None
        finally:
            tree.unlink(temporary, sync=False)

    def _about(self, path: str) -> Mapping[str, str]:
        try:
            return from_json(self._tree.read(path + _ABOUT, limit=_MAX_ABOUT), dict[str, str])
        except FileNotFoundError:
            return {}
        except msgspec.MsgspecError as error:
            raise DamagedError(f"{self.url}: {path}{_ABOUT}: {error}") from None

    def _files(self, folder: str) -> Iterator[tuple[str, os.stat_result]]:
        try:
            yield from self._tree.files(folder)
        except FileNotFoundError:
            return

    def _beneath(self, folder: str) -> list[tuple[str, os.stat_result]]:
        found = [
            (name, status)
            for name, status in self._files(folder)
            if not name.endswith(_ABOUT) and not is_temporary(name.rpartition("/")[2])
        ]
        return sorted(found, key=lambda each: each[0].encode())


def _make_folder(tree: Tree, key: str) -> str:
    folder = _path(key).rpartition("/")[0]
    if folder:
        tree.make_dirs(folder)
    return folder


def _path(key: str) -> str:
    """The path of a key's file: the key itself.

    Raises:
        NameRefusedError: it would be taken for what stands beside a file.
    """
    if key.endswith(_ABOUT) or is_temporary(key.rpartition("/")[2]):
        raise NameRefusedError(f"{key!a} is no key of an object")
    return key


@contextlib.contextmanager
def _means(url: str) -> Iterator[None]:
    """Tell a missing or refused directory from a disk that fails."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        raise StoreMissingError(f"{url}: {error.strerror}") from error
    except PermissionError as error:
        raise StoreForbiddenError(f"{url}: {error.strerror}") from error
    except NoSpaceError as error:
        raise StoreFullError(f"{url}: {error.message}") from error
    except ReadOnlyError as error:
        raise StoreReadOnlyError(f"{url}: {error.message}") from error
    except NameRefusedError as error:
        raise StoreRefusedError(f"{url}: {error.message}") from error
    except OSError as error:
        if error.errno == errno.EROFS:
            raise StoreReadOnlyError(f"{url}: {error.strerror}") from error
        raise StoreAwayError(f"{url}: {error.strerror}") from error
