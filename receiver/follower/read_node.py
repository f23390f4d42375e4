"""A node that follows a receiver or its object store: the reading half of a receiver.

It answers what readers and operators ask, as of the commit that it stands at, and takes nothing:
whoever comes to write is told where the writer is.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

import msgspec

from common.durable import Closing
from common.errors import (
    DamagedError,
    NotFoundError,
    NotTheWriterError,
    ReadOnlyError,
    Transient,
)
from receiver.datadirs.disks import Disks
from receiver.follower.follower import Follower, begin_copy, check_source
from receiver.follower.node_directory import NodeDirectory
from receiver.follower.source_opening import open_source
from receiver.metadata.following_engine import FollowingEngine
from receiver.open_engine import options_of
from receiver.operator.centre.loaded_content import LoadedContent
from receiver.operator.directories import ReceiverDirectories
from receiver.operator.stored.log_files import log_files
from receiver.operator.views.log_file_views import FollowView, LogFilesView
from receiver.transfer.said_lists.listing import Listing
from receiver.transfer.schemachanges import SchemaReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from receiver.config import ReceiverConfig
    from receiver.follower.log_source import LogSource
    from receiver.metadata.model.engine_options import EngineOptions

__all__ = ["BehindError", "ReadNode"]

_PATIENCE = 3.0
"""Seconds that a question about a later commit waits for it."""


class BehindError(Transient):
    """The question is about a moment that this node has not reached."""

    slug = "behind"


class ReadNode(Closing):
    """See the module; opened by `open`.

    Attributes:
        config: as it was opened with.
        engine: stands still or goes on, as one engine; never has some of one and some of another.
        listing: pages of the catalogue.
        content: bytes of loaded files, for readers.
        schema_reader: what became of the schema.
        operator: what operators' questions are put to.
        follower: keeps the engine up to its source.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        config: ReceiverConfig,
        engine: FollowingEngine,
        disks: Disks,
        follower: Follower,
        clock: Callable[[], float],
    ) -> None:
        self.config = config
        self.engine = engine
        self.follower = follower
        self.clock = clock
        self.listing = Listing(config, engine, disks)
        self.schema_reader = SchemaReader(engine)
        # What follows a receiver may be told of the store that has that one's copies.
        followed = config.follow.url
        url = config.storage.url if _is_address(followed) else followed
        there = msgspec.structs.replace(
            config,
            schema_dir=engine.directory,
            storage=msgspec.structs.replace(config.storage, url=url),
        )
        self.operator = ReceiverDirectories(there, engine, disks)
        self.content = LoadedContent(there, engine, disks)
        self._resources = ExitStack()

    @classmethod
    def open(
        cls,
        config: ReceiverConfig,
        *,
        anew: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.time,
        source: LogSource | None = None,
    ) -> Self:
        """Open the copy of the last time, or make one, and follow from there.

        Args:
            config: with `follow.url`.
            anew: called when this node has to be opened again, since its next copy is there.
            clock: seconds since the epoch.
            source: in place of the one that the URL means; closed with the node.

        Raises:
            ConfigError: the schema directory is none of a node's.
            ReplacedSourceError: the source is another engine's, or an owner that was replaced.
            UnreachableError: the source does not answer, and there is no copy yet.
            DamagedError: nothing at the source makes a state, and there is no copy yet.
        """
        with ExitStack() as stack:
            directory = stack.enter_context(NodeDirectory.open(config.schema_dir))
            source = source or open_source(config)
            stack.callback(source.close)
            options = options_of(config)
            engine = stack.enter_context(_engine(directory, source, options, clock))
            disks = stack.enter_context(Disks.lent(config, engine))
            follower = Follower(
                directory,
                source,
                engine,
                poll=config.follow.poll,
                options=options,
                anew=anew,
                clock=clock,
            )
            stack.enter_context(follower)
            node = cls(config, engine, disks, follower, clock)
            follower.start()
            stack.callback(node.content.close)
            node._resources = stack.pop_all()
        return node

    def close(self) -> None:
        """Stop following and let go of the directory; closing twice is harmless."""
        self._resources.close()

    # -- what is asked of it -----------------------------------------------------------------

    @property
    def writer(self) -> str | None:
        """Where files and changes go, None if that is not known here."""
        url, told = self.follower.progress().url, self.follower.origin()
        if self.config.follow.writer is not None:
            return self.config.follow.writer
        if len(told.through) > 1:
            return told.writer  # what is followed is a node itself
        return url if _is_address(url) else None

    def not_the_writer(self) -> NotTheWriterError:
        """What whoever comes to write is told."""
        where = self.writer
        if where is None:
            return NotTheWriterError(
                "this node only reads; its operator has not said where the writer is "
                "(follow.writer)"
            )
        return NotTheWriterError(f"this node only reads; the writer is at {where}")

    def displaced(self) -> None:
        """Nothing: nobody holds it for the writer."""

    def log_files(self, lsn: int, ts: int) -> LogFilesView:
        """The files of the engine, for nodes that follow this one."""
        incarnation = self.follower.progress().incarnation
        origin = msgspec.structs.replace(self.follower.origin(), writer=self.writer)
        return log_files(self.operator, lsn, ts, incarnation, origin)

    def reach(self, ts: int | None) -> None:
        """Wait a moment for what a question is about.

        Raises:
            BehindError: it does not come in time.
        """
        if ts is None or self.follower.reach(ts, _PATIENCE):
            return
        stands = self.engine.newest_commit
        raise BehindError(
            f"this node stands at commit {stands}, and {ts} is later; ask again, or the writer",
            retry_after=_PATIENCE,
        )

    def problem(self) -> str | None:
        """Why it should not be asked now (`/readyz`), None if it may."""
        found = self.follower.progress()
        most = self.config.follow.most_behind
        if found.behind is None and found.problem is not None:
            return f"{found.url}: it was not reached since the start: {found.problem}"
        if found.behind is not None and found.behind > most:
            why = found.problem or "it does not come after"
            return f"it is {found.behind:.0f} s behind {found.url}: {why}"
        return None

    def concerns(self) -> list[str]:
        """What is not as it should be, although it answers."""
        found = self.follower.progress()
        return [] if found.problem is None else ["This node does not follow: see its status."]

    def follows(self) -> FollowView:
        """Where it stands."""
        found = self.follower.progress()
        commit = self.engine.newest_commit
        return FollowView(
            url=found.url,
            incarnation=found.incarnation,
            commit=commit,
            commit_at=self.engine.times.seconds(commit),
            source_commit=found.source_commit,
            level_at=found.level_at,
            behind=None if found.behind is None else round(found.behind, 3),
            problem=found.problem,
            writer=self.writer,
        )


def _is_address(url: str | None) -> bool:
    """Whether a URL is a receiver's or a node's, and no store's."""
    return url is not None and url.startswith(("http://", "https://"))


def _engine(
    directory: NodeDirectory,
    source: LogSource,
    options: EngineOptions,
    clock: Callable[[], float],
) -> FollowingEngine:
    """The copy of the last time, where it opens; else the first one, or the next."""
    place = directory.copy
    if place is not None:
        try:
            return FollowingEngine.follow(place, options=options, clock=clock)
        except (DamagedError, NotFoundError, ReadOnlyError):
            pass  # it is a copy: there is another where it came from
    found = source.look()
    check_source(found, directory, source.url)
    return begin_copy(directory, source, found, options, clock=clock)
