"""A master as a process that dies at a crash point, once, and whoever takes its place.

Three nodes and an edge are there before. What goes on is the whole life of files at nodes: a large
one that the edge sends to a node, copies, eviction, the way back, a node that is emptied, a table
that is dropped. The master dies at a point of that, and the next life, of the same directories or
of a stand-by on the same keys of etcd, has to come to the same end.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from common.errors import TsferryError
from tests.support.centre import COMMAND, Centre
from tests.support.edge import WEEK_MS, Edge
from tests.support.etcd import Settings
from tests.support.node_process import NodeProcess
from tests.support.powercut import Disk
from tests.support.procs import Children, wait_until
from tests.support.tsfile_bytes import build

__all__ = ["DyingMaster"]

LARGE = 200_000
_CONFIG = f"""[nodes]
replicas = 2
before_ack = 1
evict_copies = 2
timeout = "2s"
assignment_timeout = "2s"
uploads_from = "64KiB"
[storage]
capacity = {6 * LARGE}
evict_above = 0.4
evict_to = 0.3
[load]
keep_deleted = "10s"
[metadata]
history = "0s"
"""


class Life(Centre):
    """One of the masters, with its commits in etcd where there are several."""

    def __init__(self, root: Path, processes: Children, settings: Settings | None) -> None:
        self.settings = settings
        super().__init__(root, processes, _CONFIG)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _write(self) -> None:
        super()._write()
        text = self.config.read_text()
        self.config.write_text(text.replace("[limits]", '[limits]\nmax_chunk_bytes = "64KiB"'))
        if self.settings is not None:
            self.config.write_text(
                f'{self.config.read_text()}backend = "etcd"\n'
                f'[metadata.etcd]\nendpoints = ["{self.settings.endpoints[0]}"]\n'
                f'prefix = "{self.settings.prefix}"\nlease = "2s"\ntimeout = "1s"\n'
                f'url = "{self.url}"\n'
            )

    def begin_to_stand_by(self) -> None:
        self.ready = self.root / "ready"
        self.ready.unlink(missing_ok=True)
        command = [COMMAND, "--config", str(self.config), "serve", "--standby"]
        self.server = self.processes.start([*command, "--ready-file", str(self.ready)], forked=True)


class DyingMaster:
    """All of it.

    Attributes:
        told: what the edge was told to be loaded, and nobody has deleted.
        died: whether the master has come to the point.
        dropped: whether it was said, once at least, that `root.b` goes.
    """

    def __init__(
        self,
        root: Path,
        processes: Children,
        *,
        disk: Disk | None = None,
        settings: Settings | None = None,
    ) -> None:
        """Have files at nodes.

        Args:
            root: for directories.
            processes: ends them.
            disk: of the master, whose power goes with it.
            settings: of the etcd of a stand-by, which takes over; else the same one starts again.
        """
        self.disk = disk
        self.died = self.dropped = False
        self.told: dict[str, str] = {}
        place = root if disk is None else disk.path
        self.leads = Life(place / "centre", processes, settings)
        self.second = None
        if settings is not None:
            self.second = Life(root / "second", processes, settings)
        url = self.leads.start()
        masters = [url] if self.second is None else [url, self.second.url]
        token = self.leads.call("token", "create", "--role", "node")["token"]
        self.nodes = [
            NodeProcess(root / name, processes, '", "'.join(masters), token)
            for name in ("one", "two", "three")
        ]
        for each in self.nodes:
            each.start()
        transfer = {"batch_bytes": 1 << 15, "chunk_bytes": 1 << 16, "max_retries": 2}
        self.edge = Edge(root / "edge", url, transfer=transfer)
        entry = msgspec.structs.replace(
            self.edge.config.receivers[0], nodes=True, standby_urls=tuple(masters[1:])
        )
        self.edge.with_settings(receivers=(entry,))
        self.write(1)
        self.write(2, sg="root.b")
        wait_until(self.sends, "the first files")
        wait_until(lambda: self._at_nodes(2), "two copies of each")

    def write(
        self, number: int, *, sg: str = "root.a", partition: int = 0, large: bool = False
    ) -> None:
        """A file of the edge."""
        name = f"{1581324718762 + number}-{number}-0-0.tsfile"
        series = {"s1": [(partition * WEEK_MS + number * 1000, number)]}
        content = build({f"{sg}.d1": series}, pad_to=LARGE if large else None)
        self.edge.put(f"sequence/{sg}/0/{partition}/{name}", content)

    def arm(self, point: str) -> None:
        """The master begins a life that ends at that point."""
        self.leads.stop()
        if self.disk is not None:
            subprocess.run(["sync", "-f", str(self.disk.path)], check=True)
        self.leads.start(env={"TSFERRY_CRASH_AT": point})
        if self.second is not None:
            self.second.begin_to_stand_by()

    # -- what goes on ------------------------------------------------------------------------

    def go_on(self, *, forgets: bool = False) -> None:
        """All that a life has, whoever leads by then; at last, nodes forget what was dropped."""
        self.write(3, large=True)  # goes to a node
        self.write(4, large=True)
        self.write(5, large=True)
        self.write(6, partition=1)  # makes a tablet
        self.until(self.sends, "a round that is loaded")
        self.until(lambda: self._at_nodes(2), "two copies of each file")
        self.until(self._has_left, "a file that has left the master")
        self.until(self._comes_back, "a file that has come back")
        self.until(self._drops, "a table that is dropped")
        self.until(self.sends, "an edge that has heard of it")
        drained = next(each for each in self.nodes if each.copies())
        self.until(lambda: self.asked("nodes", "drain", drained.uuid), "a node that is drained")
        self.until(lambda: not self._has_of("root.a", drained), "a node that is empty")
        self.until(lambda: self._at_nodes(2), "two copies of each file elsewhere")
        if forgets:
            self.until(lambda: not self._has_of("root.b", *self.nodes), "a table that is gone")
        self.until(self.sends, "a round that has nothing to do")

    @staticmethod
    def _has_of(sg: str, *nodes: NodeProcess) -> bool:
        return any(f"/{sg}/" in name for each in nodes for name in each.copies())

    def until(self, does: Callable[[], Any], what: str) -> None:
        """Try something until it is done, whoever leads."""

        def done() -> Any:
            self._next_life()
            with suppress(TsferryError, AssertionError, OSError):
                return does()
            return False

        wait_until(done, what, bound=240.0)

    def asked(self, *command: str) -> Any:
        """What the one that leads says to an operator."""
        return self.leads.call(*command)

    def sends(self) -> bool:
        """A round of the edge; whether all is loaded."""
        done = self.edge.round().exit_code == 0
        self._hear()
        return done

    def _hear(self) -> None:
        listed, files = set(self.edge.listed), self.edge.files
        self.told |= {path: md5 for path, md5 in files.items() if path in listed}
        if self.dropped:
            self.told = {path: md5 for path, md5 in self.told.items() if "/root.b/" not in path}

    def _drops(self) -> bool:
        self.dropped = True
        self._hear()
        if any("/root.b/" in path for path in self.loaded()):
            self.leads.sql("delete storage group root.b with data")
        return True

    def _has_left(self) -> bool:
        return bool(self._away())

    def _away(self) -> list[str]:
        every = self.loaded().values()
        return [each["physical"] for each in every if not self._is_here(each["physical"])]

    def _comes_back(self) -> bool:
        for each in self._away()[:1]:
            self.asked("storage", "fetch", each)
        return True

    # -- deaths ------------------------------------------------------------------------------

    def _next_life(self) -> None:
        server = self.leads.server
        assert server is not None
        if server.running:
            return
        assert server.returncode == -9, server.text()
        assert not self.died, server.text()
        self.died = True
        with suppress(FileNotFoundError):
            self._hear()
        if self.second is not None:
            self.leads = self.second
            assert self.leads.server is not None
            self.leads.server.until(self.leads.ready.exists, "the place of the first")
        else:
            if self.disk is not None:
                self.disk.cut()
            self.leads.start()
        self.check()

    def check(self) -> None:
        """What was told is loaded, once, as it was sent; its bytes are somewhere."""
        found = self.loaded()
        assert self.told.items() <= {path: each["md5"] for path, each in found.items()}.items()
        told = [found[path] for path in self.told]
        wait_until(lambda: all(map(self._is_somewhere, told)), "bytes of each file that was told")

    def loaded(self) -> dict[str, dict[str, Any]]:
        """The files that readers see, by path; each is one that the edge has, and is there once."""
        files = self.edge.files
        rows = self.asked("files", "--limit", "1000")["files"]
        live = [each for each in rows if each["state"] == "live"]
        found = {each["path"]: each for each in live}
        assert len(found) == len(live), live
        for each in live:
            assert each["md5"] == files[each["path"]], each
        return found

    def _is_here(self, physical: str) -> bool:
        return (self.leads.data / physical).exists()

    def _is_somewhere(self, row: dict[str, Any]) -> bool:
        with suppress(FileNotFoundError):  # it comes or goes
            several = [each.copies().get(row["physical"]) for each in self.nodes]
            if self._is_here(row["physical"]):
                several.append((self.leads.data / row["physical"]).read_bytes())
            md5 = {hashlib.md5(each).hexdigest() for each in several if each is not None}
            assert md5 <= {row["md5"]}, row
            return bool(md5)
        return False

    def _at_nodes(self, copies: int) -> bool:
        """Whether so many nodes have each file."""
        with suppress(FileNotFoundError):
            there = [each.copies() for each in self.nodes]
            names = [each["physical"] for each in self.loaded().values()]
            return bool(names) and all(
                sum(each in several for several in there) >= copies for each in names
            )
        return False
