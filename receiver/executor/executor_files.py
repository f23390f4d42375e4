"""Files of a receiver on the machine of an executor: in a directory that both see, or fetched.

Whoever uses one compares it with the MD5 that was loaded, wherever it lies; what is fetched is
compared as it comes, and fetched once more if it came otherwise.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from common.digests import md5
from common.durable import write_scratch
from common.errors import DamagedError, NotFoundError, TsferryError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from receiver.superseding.asking import FileAsked

__all__ = ["ExecutorFiles", "FetchFailed", "ReadsFiles"]

_PIECE: Final = 8 << 20
_AT_ONCE: Final = 4
"""Files that are fetched at a time: as many as a receiver is asked for."""


class FetchFailed(Exception):  # no error that says something of the file
    """A file is not to be had now; nothing follows from that."""


class ReadsFiles(Protocol):
    """What gives bytes of the receiver's files."""

    def read(self, physical: str, begin: int, length: int) -> bytes:
        """So many bytes at an offset; see `ReceiverReads.read`."""
        ...


class ExecutorFiles:
    """Brings files to where they can be read; for one task at a time."""

    def __init__(
        self,
        reads: ReadsFiles | None,
        directories: Sequence[Path] = (),
        *,
        expect: Callable[[Sequence[FileAsked]], object] = lambda _: None,
    ) -> None:
        """Read nothing yet.

        Args:
            reads: of the receiver; None where its directories are all there is.
            directories: data directories of the receiver that this machine sees.
            expect: is told of the files that may be fetched next.
        """
        self._reads = reads
        self._directories = directories
        self._expect = expect

    def placed(self, files: Sequence[FileAsked], folder: Path) -> list[FileAsked]:
        """The same files with their places: where they lie, or are fetched to when it is time.

        Raises:
            TsferryError: it is not to be known where they are.
        """
        placed = [
            msgspec.structs.replace(
                each, path=self._shared(each) or str(folder / f"{number}.tsfile")
            )
            for number, each in enumerate(files)
        ]
        self._expect([each for each in placed if not self._is_shared(Path(each.path or ""))])
        return placed

    def fetch_all(
        self,
        files: Sequence[FileAsked],
        is_over: Callable[[], bool],
        done: Callable[[int], None],
        paced: Callable[[int], object] = lambda _: None,
    ) -> None:
        """Fetch what is not in its place yet.

        Args:
            files: with their places.
            is_over: whether nobody needs them any more.
            done: is told the size of each that is there.
            paced: waits until so many bytes may be fetched.

        Raises:
            FetchFailed: a file is not to be had now, or nobody needs them any more.
            FileNotFoundError, ValueError: see `fetch`.
        """

        def one(file: FileAsked) -> int:
            if is_over():
                raise FetchFailed("nobody needs them any more")
            self.fetch(file, paced)
            return file.size

        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="fetch") as pool:
            try:
                for size in pool.map(one, files):
                    done(size)
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise

    def fetch(self, file: FileAsked, paced: Callable[[int], object] = lambda _: None) -> None:
        """Fetch a file to its place, if it is not there.

        Args:
            file: with its place.
            paced: waits until so many bytes may be fetched.

        Raises:
            FetchFailed: it is not to be had now, or there is no room for it here.
            FileNotFoundError: the receiver does not have it any more.
            ValueError: its bytes are not those that were loaded.
        """
        assert file.path is not None
        path = Path(file.path)
        if path.exists():
            return
        if self._reads is None or self._is_shared(path):
            raise FileNotFoundError(f"{file.physical}: its bytes are not there")
        try:
            try:
                write_scratch(path, self._pieces(self._reads, file, paced))
            except _ChangedOnTheWay:
                write_scratch(path, self._pieces(self._reads, file, paced))
        except _ChangedOnTheWay as error:
            raise ValueError("its bytes are not those that were loaded") from error
        except NotFoundError as error:
            raise FileNotFoundError(error.message) from error
        except DamagedError as error:
            raise ValueError(error.message) from error
        except (TsferryError, OSError) as error:
            raise FetchFailed(f"{file.physical} is not to be had now: {error}") from error

    def _shared(self, file: FileAsked) -> str | None:
        """Where a directory that is seen here has a file of this name and size."""
        for each in self._directories:
            path = each / file.physical
            try:
                if os.stat(path).st_size == file.size:
                    return str(path)
            except OSError:
                continue
        return None

    def _is_shared(self, path: Path) -> bool:
        return any(path.is_relative_to(each) for each in self._directories)

    def _pieces(
        self, reads: ReadsFiles, file: FileAsked, paced: Callable[[int], object]
    ) -> Iterator[bytes]:
        found = md5()
        for begin in range(0, file.size, _PIECE):
            length = min(_PIECE, file.size - begin)
            paced(length)
            piece = reads.read(file.physical, begin, length)
            found.update(piece)
            yield piece
        if found.hexdigest() != file.md5:
            raise _ChangedOnTheWay


class _ChangedOnTheWay(Exception):
    """What came is not what was loaded; `write_scratch` takes it away."""
