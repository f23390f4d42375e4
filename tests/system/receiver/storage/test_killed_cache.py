"""A receiver that is killed while files leave its disk or come back: each is whole somewhere."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from common.digests import md5
from tests.support.centre import Centre
from tests.support.centre import centre as serving
from tests.support.edge import Edge
from tests.support.looking import rows
from tests.support.web import until


def remote(centre: Centre) -> list[str]:
    found = centre.call("files")["files"]
    return [each["physical"] for each in found if each["data_dir"] is None]


def is_whole(centre: Centre, physical: str, digest: str) -> bool:
    """Whether a file is here with its bytes; it may have to make room for the one before it."""
    try:
        content = (centre.data / physical).read_bytes()
    except FileNotFoundError:
        centre.call("storage", "fetch", physical)
        return False
    assert md5(content).hexdigest() == digest
    return True


@pytest.mark.few(1)
@pytest.mark.parametrize("point", ["storage.evict.half", "storage.fetch.named"])
def test_it_is_killed_and_every_file_is_as_it_was(tmp_path: Path, point: str) -> None:
    (tmp_path / "bucket").mkdir()
    more = f'[storage]\nurl = "{(tmp_path / "bucket").as_uri()}"\nlag = "100ms"\ncapacity = "24K"\n'
    with serving(tmp_path / "b", more) as centre:
        evicting = point.startswith("storage.evict")
        url = centre.start(env={"TSFERRY_CRASH_AT": point} if evicting else None)
        edge = Edge(tmp_path / "one", url)
        for number in range(8):
            edge.write(number)
        with suppress(Exception):  # it may be dead before the round is over
            edge.round()
        assert centre.server is not None
        if not evicting:
            until(lambda: remote(centre))
            centre.stop()
            centre.start(env={"TSFERRY_CRASH_AT": point})
            with suppress(Exception):
                centre.call("storage", "fetch", "*")
        until(lambda: centre.server is not None and centre.server.returncode == -9)
        centre.start()
        until(lambda: edge.round().exit_code == 0)
        assert centre.call("fsck")["found"] == []
        wanted = {row.physical: row.md5 for row in rows(centre.root, edge.uuid)}
        assert len(wanted) == 8
        for physical, digest in wanted.items():
            until(partial(is_whole, centre, physical, digest))
        assert not list((centre.data / ".fetching").glob("*"))
