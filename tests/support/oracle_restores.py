"""Histories at a centre that is restored: of its object store, or of a copy of its directories.

Of the store it comes back as it was. A copy is older: what the edge has comes again; what it freed
since then is nowhere any more, and is given as the copy has it, where it has it.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from common.durable import Tree
from receiver.config import StorageConfig
from receiver.datadirs.directory_finding import adopt
from receiver.open_engine import open_engine
from receiver.storage.cache.file_restore import restore_files
from receiver.storage.copying import store_of
from receiver.storage.log_copies.metadata_restore import restore_metadata
from receiver.storage.stores.incarnation import next_incarnation
from receiver.web.app import close, create_app, site_of
from tests.support.edge_shapes import Points, Shape
from tests.support.oracle import Oracle, difference, receiver_config
from tests.support.oracle_host import InProcess
from tests.support.oracle_play import WEIGHTS, Play, WrongAnswer
from tests.support.proving import in_this_process
from tests.support.web import running, until

__all__ = ["RestoredCentre", "RestoredPlay", "restored_centre"]

_RESTORED = WEIGHTS | {"burn": 1.5, "put_aside": 2.0, "turn_back": 1.5}


class RestoredCentre(InProcess):
    """A receiver with a store, in this process, on the same port over restarts."""

    def __init__(self, root: Path) -> None:
        self._root = root
        (root / "bucket").mkdir(parents=True)
        storage = StorageConfig(url=(root / "bucket").as_uri(), lag=0.1, scrub_days=0)
        self._config = msgspec.structs.replace(receiver_config(root), storage=storage)
        self._open = contextlib.ExitStack()
        self._port = 0
        self.start()

    def start(self) -> None:
        app = create_app(self._config)
        self._open.callback(close, app)
        site = site_of(app)
        in_this_process(site.node)
        server = self._open.enter_context(running(app, gate=site.gate, port=self._port))
        self._open.callback(site.polls.close)
        _, self._port = server.addresses[0]
        super().__init__(site.node, f"http://127.0.0.1:{self._port}")

    def stop(self) -> None:
        self._open.close()

    def put_aside(self) -> Path:
        """Copy its directories while nothing runs; the copy before goes."""
        self.rest()
        place = self._root / "aside of the centre"
        self.stop()
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self._root / "centre", place, symlinks=True)
        self.start()
        return place

    def turn_back(self, place: Path) -> None:
        """It is what the copy was, and takes over the store."""
        uuid = self.node.engine.uuid
        self.stop()
        shutil.rmtree(self._root / "centre")
        shutil.copytree(place, self._root / "centre", symlinks=True)
        store = store_of(self._config.storage)
        with Tree(self._config.schema_dir) as home:
            next_incarnation(store, home, uuid)
        store.close()
        self.start()

    def burn(self) -> None:
        """Its directories are lost when all is in the store; others are made of that."""
        self.rest()
        self._copied()
        uuid, config = self.node.engine.uuid, self._config
        self.stop()
        shutil.rmtree(self._root / "centre")
        for each in config.data_dirs:
            each.mkdir(parents=True)
        store = store_of(config.storage)
        restore_metadata(store, uuid, config.schema_dir, take_over=True)
        with open_engine(config) as engine:
            adopt(config, uuid)
            trees = [Tree(each) for each in config.data_dirs]
            found = restore_files(store, engine, trees)
            for tree in trees:
                tree.close()
        store.close()
        if found.lacking:
            raise WrongAnswer("not all was in the store", found.lacking)
        self.start()

    def _copied(self) -> None:
        storage = self.node.storage
        assert storage is not None

        def is_copied() -> bool:
            storage.hurry()
            behind = storage.progress().files.waiting_files
            return not behind and storage.shipped() == self.node.engine.newest_commit

        until(is_copied, "a copy of all in the store")


class _Aside(NamedTuple):
    """A copy of the centre, and what it gave."""

    place: Path
    answer: Points
    given: Points
    before: Points


class RestoredPlay(Play):
    """Such a history.

    Attributes:
        restores: how often the centre was made anew.
    """

    def __init__(self, world: Oracle, seed: int) -> None:
        super().__init__(world, seed, weights=_RESTORED)
        self.aside: _Aside | None = None
        self.restores = 0

    @property
    def centre(self) -> RestoredCentre:
        assert isinstance(self.world.host, RestoredCentre)
        return self.world.host

    def _burn(self) -> None:
        """Of its store it comes back as it was."""
        if not self.world.view().rows:
            return
        before = self.world.answer()
        self.centre.burn()
        self._note("burn")
        self.restores += 1
        if (now := self.world.answer()) != before:
            raise WrongAnswer("the store gives another answer", difference(now, before))

    def _put_aside(self) -> None:
        if self.world.view().rows:
            place = self.centre.put_aside()
            self.aside = _Aside(place, self.world.answer(), dict(self.given), dict(self.before))
            self._note("put aside")

    def _turn_back(self) -> None:
        """The centre is what its copy was, and the edge goes on."""
        if self.aside is None:
            return
        kept, self.aside = self.aside, None
        self.centre.turn_back(kept.place)
        self._note("turn back")
        self.restores += 1
        if (now := self.world.answer()) != kept.answer:
            raise WrongAnswer("the copy gives another answer", difference(now, kept.answer))
        self.given, self.before = kept.given, kept.before
        # What was deleted since holds where the edge still has it to tell, and there alone.
        self.unsure |= self.database.log.keys() - self.world.view().seen
        self.partly = self.compacted = self.died = True
        for _ in range(3):
            report = self.world.edge.round(accept_source=True)
            self._note("round after", report.sent, report.retired, report.held, report.error)
            if report.error is not None:
                raise WrongAnswer("a round failed", report.error)
        self._weak()
        self._whole_round()


@contextlib.contextmanager
def restored_centre(root: Path, mode: str, shape: Shape) -> Iterator[Oracle]:
    """A centre with a store, and an edge."""
    centre = RestoredCentre(root)
    try:
        yield Oracle(root, mode, centre, shape)
    finally:
        centre.stop()
