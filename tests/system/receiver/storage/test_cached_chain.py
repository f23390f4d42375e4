"""A forwarding centre whose disk is smaller than what it has: nothing is lost or goes twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from sender.send.catalogue_calls import CatalogueCalls
from tests.support.centre import centre as serving
from tests.support.looking import loaded, rows
from tests.support.web import until
from tests.system.test_forwarding_chain import Chain


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[Chain]:
    (tmp_path / "bucket").mkdir()
    more = (
        f'[storage]\nurl = "{(tmp_path / "bucket").as_uri()}"\nlag = "100ms"\n'
        'capacity = "24K"\npin_wait = "2s"\n'
    )
    with serving(tmp_path / "b", more) as b, serving(tmp_path / "c") as c:
        yield Chain(tmp_path, b, c)


def remote(chain: Chain) -> list[str]:
    """What the centre in the middle has in its store only."""
    found = chain.lower.call("files")["files"]
    return [each["physical"] for each in found if each["data_dir"] is None]


def test_what_left_the_disk_is_forwarded_once_and_ends_as_anything_else(chain: Chain) -> None:
    for number in range(6):
        chain.write(number, points=10 + number)

    def all_is_loaded() -> bool:
        for edge in chain.edges:
            edge.round()
        return all(len(rows(chain.lower.root, edge.uuid)) == 6 for edge in chain.edges)

    until(all_is_loaded)
    until(lambda: len(remote(chain)) >= 6)
    wanted = Counter(md5 for edge in chain.edges for md5 in edge.files.values())

    def above() -> Counter[str]:
        chain.forwarder.round()
        return Counter(loaded(chain.upper.root, chain.forwarder.uuid).values())

    until(lambda: above() == wanted)
    until(lambda: chain.forwarder.round().quiet)
    assert chain.lower.call("fsck")["found"] == []
    one = remote(chain)[0]
    pattern = f"{one.rpartition('.')[0]}*"
    assert chain.lower.call("storage", "fetch", pattern)["here"] == [one]
    assert one not in remote(chain)
    for edge in chain.edges:
        edge.remove(edge.path(0))
        assert edge.round().exit_code == 0
    wanted = Counter(md5 for edge in chain.edges for md5 in edge.files.values())
    until(lambda: above() == wanted)


def test_what_is_sent_next_is_said_ahead_and_is_on_the_disk_by_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[list[str], list[str]]] = []
    fetch = CatalogueCalls.fetch

    def noting(self: CatalogueCalls, wanted: Sequence[str], ahead: Sequence[str] = ()) -> Any:
        asked.append((list(wanted), list(ahead)))
        return fetch(self, wanted, ahead)

    monkeypatch.setattr(CatalogueCalls, "fetch", noting)
    (tmp_path / "bucket").mkdir()
    more = f'[storage]\nurl = "{(tmp_path / "bucket").as_uri()}"\nlag = "100ms"\n'
    with serving(tmp_path / "b", more) as b, serving(tmp_path / "c") as c:
        chain = Chain(tmp_path, b, c)
        edge = chain.edges[0]
        for number in range(6):
            edge.write(number)
        until(lambda: edge.round().quiet)
        until(lambda: b.call("storage", "status")["uploaded_files"] == 6)
        b.stop()
        for place in b.data.rglob("*.tsfile*"):
            place.unlink()
        b.start()
        until(lambda: len(remote(chain)) == 6)
        chain.forwarder.with_settings(task_max_files=2)
        assert chain.forwarder.round().sent >= 2
        ((wanted, ahead),) = asked
        assert (len(wanted), len(ahead), len({*wanted, *ahead})) == (2, 2, 4)
        # They come though nobody asks for them, and are not asked for.
        until(lambda: not set(ahead) & set(remote(chain)))
        until(lambda: chain.forwarder.round().quiet)
        assert not set(ahead) & {path for paths, _ in asked for path in paths}
        assert len(loaded(c.root, chain.forwarder.uuid)) == 6
