"""What it brings that files of the next questions of a proof come from the store meanwhile.

    python -m scripts.bench.fetched_in_turn --repeat 5

Batches of four files are in a real S3 server alone, behind a proxy that adds 100 ms to each
request; each is worked on for 0.3 s, one after the other, and with the next ones fetched ahead.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path

from receiver.storage.cache.disk_cache import DiskCache
from receiver.storage.cache.file_fetching import FileFetcher
from receiver.storage.stores.store_opening import StoreOptions, open_store
from tests.support.s3_proxy import S3Proxy
from tests.support.s3_server import KEY, REGION, SECRET, s3_server
from tests.support.uploading import Centre

_BATCHES, _FILES = 12, 4
_WORK = 0.3
_DELAY = 0.1


def _over(turns: Iterable[AbstractContextManager[None]]) -> float:
    begun = time.monotonic()
    for each in turns:
        with each:
            time.sleep(_WORK)
    return time.monotonic() - begun


def _measure(root: Path, endpoint: str, proxy: S3Proxy, repeat: int) -> None:
    options = StoreOptions(endpoint=endpoint, region=REGION, path_style=True)
    store = open_store("s3://tests/turns", options)
    centre = Centre(root, store)
    loaded = [centre.load(number) for number in range(_BATCHES * _FILES)]
    centre.uploader.run_once()
    with centre.engine.reading() as state:
        rows = [state.files[each] for each in loaded]
    batches = [rows[at : at + _FILES] for at in range(0, len(rows), _FILES)]
    fetcher = FileFetcher(centre.engine, store, lambda: [centre.tree], DiskCache(None))
    proxy.delay = _DELAY
    seconds: dict[str, list[float]] = {"one after the other": [], "fetched ahead": []}
    for _ in range(repeat):
        for name, found in seconds.items():
            for each in loaded:
                centre.tree.unlink(each)
            ahead = name == "fetched ahead"
            alone = (fetcher.pinned(each) for each in batches)
            found.append(_over(fetcher.pinned_in_turn(batches) if ahead else alone))
    for name, found in seconds.items():
        said = f"{statistics.median(found):.1f} ({min(found):.1f} to {max(found):.1f})"
        print(f"{name}: {said} s, of which {_BATCHES * _WORK:.1f} are work")
    fetcher.close()
    centre.stop()


def main() -> None:
    """Measure, and say it."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--repeat", type=int, default=5)
    given = asked.parse_args()
    os.environ.update(AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=SECRET)
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        (root / "centre").mkdir()
        with s3_server(root / "s3") as server, S3Proxy(server.endpoint) as proxy:
            _measure(root / "centre", proxy.endpoint, proxy, given.repeat)


if __name__ == "__main__":
    main()
