"""What the old sync tool had sent, against what the receiver has."""

from __future__ import annotations

from types import SimpleNamespace

from common.console.step_progress import StepProgress
from common.names import FilePath
from common.wire import InventoryEntry
from sender.round.compared_lists.adopted_lists import adopted


def test_whoever_watches_an_adoption_sees_the_bytes_that_are_read() -> None:
    paths = [FilePath.parse(f"sequence/root.sg/0/0/{n}-{n}-0-0.tsfile") for n in (1, 2, 3)]
    files = {
        path: SimpleNamespace(size=size) for path, size in zip(paths, (100, 7, 100), strict=True)
    }
    scan = SimpleNamespace(files=files, is_missing=lambda _: False, waiting=())
    facts = SimpleNamespace(md5=lambda file: "a" * 32)
    there = InventoryEntry(path=paths[0].text, size=100, md5="a" * 32, state="loaded")
    heard: list[StepProgress] = []
    found = adopted(scan, {}, [there], facts, heard.append)  # type: ignore[arg-type]
    assert list(found.there) == [paths[0], paths[2]]
    assert heard == [
        StepProgress("comparing", number, 3, size, 200)
        for number, size in enumerate((0, 100, 100, 200))
    ], "what has another size than all there is not read"
