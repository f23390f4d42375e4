"""The files of a receiver: from its directories, or from the running server by its URL.

Both are read beside the server, which need not run for the first. The bytes are read where they
are: workers need the receiver's data directories, or a mount of them (option ``dataDirs``).
"""

from __future__ import annotations

import datetime
import os
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeVar
from urllib.parse import urlsplit

import requests

from common import wire
from common.config import is_loopback, load
from common.errors import ProtocolError, UnreachableError, UsageError
from receiver.config import ENV_PREFIX, ReceiverConfig
from receiver.metadata.engine import Engine
from receiver.metadata.model.timestamps import from_seconds
from receiver.metadata.query.past_files import files_at
from receiver.spark.source.files import SourceFile

if TYPE_CHECKING:
    from receiver.metadata.state.rows import FileRow
    from receiver.spark.source.options import Options, TimeUnit

__all__ = ["Catalogue", "Loads", "LocalCatalogue", "RemoteCatalogue", "open_catalogue", "unit_of"]

T = TypeVar("T", bound=wire.Struct)
_PAGE: Final = 1000
_TIMEOUT: Final = (10, 60)
_MOST: Final = 1 << 26


class Loads(NamedTuple):
    """What was loaded in a range of commits, as of a commit.

    Attributes:
        visible: files to read.
        held: files in quarantine.
    """

    visible: list[SourceFile]
    held: list[SourceFile]


class Catalogue(AbstractContextManager["Catalogue"]):
    """What a receiver has loaded."""

    engine: str
    """Its uuid: another engine's commits mean nothing here."""

    @property
    @abstractmethod
    def newest(self) -> int:
        """The newest commit."""

    @abstractmethod
    def loads(self, at: int, since: int = 0) -> Loads:
        """What was loaded after `since`, as of `at`.

        Raises:
            HistoryGoneError: `at` is before the kept history.
        """

    def at(self, when: int | datetime.datetime | None) -> int:
        """The commit that a time means; without one, or with one to come, the newest."""
        if when is None:
            return self.newest
        ts = when if isinstance(when, int) else from_seconds(when.timestamp())
        return min(ts, self.newest)

    def files(self, at: int) -> list[SourceFile]:
        """All files that were visible at a commit."""
        return self.loads(at).visible

    def refresh(self) -> None:
        """Look at what was committed since."""

    def close(self) -> None:
        """Let go of it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_catalogue(options: Options) -> Catalogue:
    """The catalogue that the options name.

    Raises:
        UsageError: it is no configuration file, schema directory or URL.
        NotFoundError: there is no engine in the directory.
        UnreachableError: nobody answers at the URL.
    """
    text = options.catalog or ""
    if text.startswith(("http://", "https://")):
        return RemoteCatalogue(text, options)
    return LocalCatalogue(options)


def unit_of(options: Options) -> TimeUnit | None:
    """The unit of the times, where the receiver's configuration is at hand."""
    path = Path(options.catalog or "")
    return _configuration(path).time_unit if path.is_file() else None


def _configuration(path: Path) -> ReceiverConfig:
    return load(
        ReceiverConfig, file=path, env_prefix=ENV_PREFIX, environ=os.environ, flags={},
        secrets=False,
    ).value  # fmt: skip


def _kept(files: Iterable[SourceFile], kind: str) -> list[SourceFile]:
    return [each for each in files if kind == "all" or each.name.startswith(f"{kind}/")]


# -- directories ---------------------------------------------------------------------------------


class LocalCatalogue(Catalogue):
    """Reads the engine's files, beside a server that may be running."""

    def __init__(self, options: Options) -> None:
        """Open it.

        Raises:
            UsageError: there is neither a file nor a directory.
        """
        path = Path(options.catalog or "").absolute()
        self._kind = options.kind
        self._roots: Sequence[str] = options.data_dirs
        if path.is_dir():
            self._schema = path
        elif path.is_file():
            config = _configuration(path)
            self._schema = config.schema_dir
            self._roots = self._roots or [str(each) for each in config.data_dirs]
        else:
            raise UsageError(
                f"option catalog = {options.catalog!r}: expected a receiver's configuration file, "
                "its schema directory or its URL; there is nothing"
            )
        self._seen: Any = None
        self._engine: Engine | None = None
        self.refresh()

    def refresh(self) -> None:
        """Read the engine anew, if its files changed."""
        seen = self._look()
        if self._engine is not None and seen == self._seen:
            return
        engine = Engine.read_only(self._schema)
        self.close()
        self._engine, self._seen = engine, seen
        self.engine = engine.uuid

    def _look(self) -> list[tuple[str, int, int]]:
        # Every commit makes the log longer.
        try:
            found = [(each.name, each.stat()) for each in os.scandir(self._schema)]
        except OSError:
            return []
        return sorted((name, stat.st_size, stat.st_ino) for name, stat in found)

    @property
    def newest(self) -> int:
        """See `Catalogue`."""
        assert self._engine is not None
        return self._engine.newest_commit

    def loads(self, at: int, since: int = 0) -> Loads:
        """See `Catalogue`."""
        assert self._engine is not None
        past = files_at(self._engine, at, since=since)
        visible, held = map(self._file, past.visible), map(self._file, past.quarantined)
        return Loads(_kept(visible, self._kind), _kept(held, self._kind))

    def _file(self, row: FileRow) -> SourceFile:
        return SourceFile(
            _locations(self._roots or [row.data_dir], row.physical),
            row.physical,
            row.size,
            row.physical.split("/")[1],
            row.created,
            row.devices,
            row.first,
            row.last,
            is_known=True,
        )

    def close(self) -> None:
        """See `Catalogue`."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None


def _locations(roots: Sequence[str], physical: str) -> tuple[str, ...]:
    if not any(roots):
        raise UsageError(
            "option dataDirs: missing; the catalogue does not say where its data directories are"
        )
    return tuple(f"{root}/{physical}" for root in roots)


# -- a running server ----------------------------------------------------------------------------


class RemoteCatalogue(Catalogue):
    """Asks a running server, as a reader."""

    def __init__(self, url: str, options: Options) -> None:
        """Ask it who it is.

        Raises:
            UsageError: the token would travel where others can read it.
            UnreachableError: it does not answer.
        """
        parts = urlsplit(url)
        if options.token and parts.scheme == "http" and not is_loopback(parts.hostname or ""):
            raise UsageError(
                f"option catalog = {url!r}: expected https, since others can read a token on http"
            )
        self._url = f"{url.rstrip('/')}{wire.BASE}/catalogue"
        self._options = options
        self._session = requests.Session()
        self._session.trust_env = False  # no .netrc, no proxy: the token is for this server alone
        if options.ca_cert is not None:
            self._session.verify = options.ca_cert
        if options.token:
            self._session.headers["Authorization"] = f"Bearer {options.token}"
        self.refresh()

    def refresh(self) -> None:
        """See `Catalogue`."""
        answer = self._ask(limit=1)
        self.engine, self._newest = answer.engine, answer.commit

    @property
    def newest(self) -> int:
        """See `Catalogue`."""
        return self._newest

    def loads(self, at: int, since: int = 0) -> Loads:
        """See `Catalogue`."""
        visible: list[SourceFile] = []
        held: list[SourceFile] = []
        after = None
        while True:
            answer = self._ask(at=at, since=since, quarantined="true", after=after, limit=_PAGE)
            for each in answer.entries:
                (held if each.state == "quarantined" else visible).append(self._file(each))
            after = answer.next
            if after is None:
                return Loads(_kept(visible, self._options.kind), _kept(held, self._options.kind))

    def _file(self, entry: wire.CatalogueEntry) -> SourceFile:
        return SourceFile(
            _locations(self._options.data_dirs or [entry.data_dir], entry.path),
            entry.path,
            entry.size,
            entry.path.split("/")[1],
            entry.commit,
            None,
            entry.first_time,
            entry.last_time,
            is_known=True,
        )

    def _ask(self, **query: str | int | None) -> wire.CatalogueAnswer:
        try:
            with self._session.get(
                self._url,
                params={key: value for key, value in query.items() if value is not None},
                timeout=_TIMEOUT,
                allow_redirects=False,
                stream=True,
            ) as answer:
                body = answer.raw.read(_MOST, decode_content=True)
        except (requests.RequestException, OSError) as error:
            raise UnreachableError(f"{self._url} does not answer: {error}") from error
        media = answer.headers.get("Content-Type", "").partition(";")[0]
        if answer.status_code >= 300:
            if media == wire.PROBLEM_TYPE:
                raise wire.from_problem(wire.decode(body, wire.Problem, "the server's refusal"))
            raise ProtocolError(f"{self._url} answered with HTTP status {answer.status_code}")
        return wire.decode(body, wire.CatalogueAnswer, f"answer of {self._url}")

    def close(self) -> None:
        """See `Catalogue`."""
        self._session.close()
