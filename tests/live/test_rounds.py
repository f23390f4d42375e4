"""A real server is the edge: after each round readers at the centre get what it answers itself."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sender.round.round_words.round_report import RoundReport
from sender.select.data_dirs import mark
from tests.live.living import Cells, Living, centre_answer, difference
from tests.live.server import COMPACTION_DELAY, Server, versions
from tests.support.oracle import Oracle, oracle

pytestmark = pytest.mark.timeout(900)

STEPS = 6
"""Of one life between two starts of the server."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    servers = metafunc.config.getoption("servers")
    if servers is None:
        raise pytest.UsageError("tests/live wants --servers DIR: see scripts/live")
    metafunc.parametrize("version", versions(servers))


class Lives:
    """A server's lives, and rounds between them.

    Attributes:
        kept: what files gave that were freed at the edge.
        unseen: points whose deletion was compacted away between two looks.
        older: points that the server has fallen back to an older value of.
    """

    def __init__(self, world: Oracle, living: Living, schema_dir: Path) -> None:
        self.world = world
        self.living = living
        self.server = living.server
        self.kept: Cells = {}
        self.unseen: set[Any] = set()
        self.older: set[Any] = set()
        self._schema_dir = schema_dir
        self._agreed: dict[Any, int] = {}
        self._compacts = False

    def live(
        self,
        settings: Mapping[str, str],
        *,
        compacts: bool = True,
        steps: int = STEPS,
        deletes: bool = True,
    ) -> None:
        self._compacts |= compacts
        with self.server.running(settings):
            since = time.monotonic()
            if self.living.said:
                self.living.restarted()
            else:
                self.living.create()
            for _ in range(steps):
                self.living.step(deletes=deletes)
                self.compare()
            if compacts:
                time.sleep(max(0.0, COMPACTION_DELAY - (time.monotonic() - since)))
                self.living.step(deletes=deletes)
                self.living.flush()
                self.server.quiet(5, 30)
                self.compare()

    def free(self, part: float) -> None:
        """Remove files that are loaded, while the server does not run."""
        before = centre_answer(self._schema_dir)
        files = sorted(self.server.files.rglob("*.tsfile"))
        for each in files[: int(len(files) * part)]:
            for beside in each.parent.glob(f"{each.name}*"):
                beside.unlink()
        self.kept = before

    def compare(self) -> None:
        """A round of all that is closed."""
        self.living.flush()
        self.server.quiet(0.6, 5)
        for _ in range(8):
            before = self.server.listing()
            report = self.world.round()
            assert report.error is None
            wanted = self._wanted()
            given = self.living.above(centre_answer(self._schema_dir))
            found = self._left(difference(given, wanted))
            # What is compacted meanwhile may bring deleted points back, or take them away.
            if not found or (not waits(report) and self.server.listing() == before):
                break
            time.sleep(1)
        said = self.living.said[-300:]
        assert not found, (len(found), list(found.items())[:12], report, said)
        for key in self._agreed.keys() - given.keys():
            self._agreed[key] = self.living.written
        self._agreed |= {key: self._agreed.get(key, 0) for key in given}

    def _wanted(self) -> Cells:
        """What the server gives; of what it has no more, or falls back for, what was freed."""
        wanted = self.living.answer()
        for key, value in self.living.above(self.kept).items():
            wanted[key] = max(value, wanted.get(key, 0))
        return wanted

    def _left(self, found: dict[Any, Any]) -> dict[Any, Any]:
        """Without what docs/ranks.md knows, and without deletions that no look could find."""
        left = {}
        for key, (given, wanted) in found.items():
            if given is None:
                left[key] = given, wanted
            elif self._is_unseen(key, given):
                self.unseen.add((key, given))
            elif wanted is not None and given > wanted and not self.server.version.startswith("2."):
                self.older.add((key, given))
            else:
                left[key] = given, wanted
        return left

    def _is_unseen(self, key: Any, given: int) -> bool:
        deleted = self.living.deletion_of(key, given)
        return self._compacts and deleted > self._agreed.get(key, 0)


def waits(report: RoundReport) -> bool:
    """Whether something was not looked at whole."""
    return bool(report.waiting or report.changed or report.held or report.failed)


@pytest.mark.parametrize("mode", ["replaced", "all"])
def test_readers_get_what_the_server_answers(
    version: str, mode: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    server = Server(request.config.getoption("servers") / version, tmp_path / "server")
    server.files.mkdir(parents=True)
    with oracle(tmp_path / "world", mode) as world:
        mark(server.files, world.edge.uuid)
        world.edge.with_settings(data_dirs=(server.files,))
        living = Living(server, request.config.getoption("seed"))
        lives = Lives(world, living, tmp_path / "world" / "centre" / "schema")
        kind = server.kind
        lives.live(kind.quiet, compacts=False)
        lives.live(kind.inner)
        lives.living.expire_from(0.3)
        lives.live({**kind.inner, **kind.cross})
        lives.live(kind.cross)
        if mode == "replaced":
            lives.free(0.5)
            lives.live(kind.quiet, compacts=False, steps=3, deletes=False)
    print(version, mode, f"unseen deletions: {len(lives.unseen)}, older: {len(lives.older)}")
