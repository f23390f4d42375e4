"""What nodes offer is fetched as a database lays it, with what was deleted of it, or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from common.digests import md5
from common.errors import UnreachableError
from receiver.cli.copy_commands.offered_copies import fetch_offered
from receiver.operator.client import ServerAnswer
from receiver.operator.views.copy_views import OfferedDeletions, OfferedFile

PATH = "sequence/root.t/0/0/1-1-0-0.tsfile"
OLD, NEW = b"older" * 30, b"newer" * 40
SENDER = "b" * 32


def offer(content: bytes, commit: int, **changes: Any) -> OfferedFile:
    file = OfferedFile(
        node="a" * 32,
        tablet="c" * 32,
        table="root.t",
        physical=PATH.replace(".tsfile", f".{commit}.tsfile"),
        size=len(content),
        md5=md5(content).hexdigest(),
        sender=SENDER,
        path=PATH,
        commit=commit,
        deletions=(OfferedDeletions(form="mods", content=b"records"),),
    )
    return msgspec.structs.replace(file, **changes)


class Server:
    """Gives ranges of what is held, a hundred bytes at most."""

    def __init__(self, *contents: tuple[OfferedFile, bytes]) -> None:
        self.held = {file.physical: content for file, content in contents}
        self.is_away = False

    def exchange(self, method: str, path: str, query: Any, headers: Any, body: bytes) -> Any:
        if self.is_away:
            raise UnreachableError("the node is away")
        begin = query["begin"]
        content = self.held[query["path"]][begin : begin + min(query["length"], 100)]
        return ServerAnswer(200, {}, content)


def on_disk(into: Path) -> dict[str, bytes]:
    return {
        str(each.relative_to(into)): each.read_bytes() for each in into.rglob("*") if each.is_file()
    }


def test_the_newest_of_a_path_comes_with_its_deletions(tmp_path: Path):
    old, new = offer(OLD, 3), offer(NEW, 7)
    server: Any = Server((old, OLD), (new, NEW))
    into = tmp_path / "offered"
    for _ in range(2):  # and once more
        assert fetch_offered(server, [new, old], into) == {}
        assert on_disk(into) == {f"{SENDER}/{PATH}": NEW, f"{SENDER}/{PATH}.mods": b"records"}


def test_what_is_not_as_it_was_or_does_not_come_is_told_and_leaves_nothing(tmp_path: Path):
    file = offer(NEW, 7)
    server: Any = Server((file, NEW[:-1] + b"?"))
    failed = fetch_offered(server, [file], tmp_path)
    assert list(failed) == [file.physical]
    server.is_away = True
    assert "is away" in fetch_offered(server, [file], tmp_path)[file.physical]
    assert on_disk(tmp_path) == {}


def test_no_name_leads_out_of_the_directory(tmp_path: Path):
    bad = [
        offer(NEW, 1, sender="../x"),
        offer(NEW, 2, path="../../x.tsfile"),
        offer(NEW, 3, deletions=(OfferedDeletions(form="../mods", content=b""),)),
    ]
    server: Any = Server(*((each, NEW) for each in bad))
    assert len(fetch_offered(server, bad, tmp_path / "into")) == 3
    assert [each for each in on_disk(tmp_path) if ".fetching" not in each] == []
