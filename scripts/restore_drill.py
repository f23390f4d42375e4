"""A centre with many files loses its machine at random moments, and is made anew of its store.

    .venv/bin/python scripts/restore_drill.py [--files 100000] [--kills 3] [--s3] [--before-ack]
                                              [--task 20000] [--seed N] [--at DIR]

An edge with so many small files sends them in tasks; at random moments of that the receiver is
killed and its directories are removed. Another is made of the store (a directory, or SeaweedFS), is
looked at, and the edge comes. The last kill is behind the last file, so that the whole is restored.

Each time: what is in the copy of the log is there, byte by byte, or named; with `--before-ack`
nothing that was acknowledged is missing; and in the end both sides have the same. Exit code 0 if
all of that holds.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from receiver.metadata.state.table_rows import FileState  # noqa: E402
from scripts.ended_by_signals import end_on_signals  # noqa: E402
from tests.support.copying_centre import CopyingCentre  # noqa: E402
from tests.support.edge import Edge  # noqa: E402
from tests.support.looking import in_sync, loaded, rows  # noqa: E402
from tests.support.procs import children  # noqa: E402
from tests.support.s3_server import KEY, REGION, SECRET, s3_server  # noqa: E402


def say(text: str) -> None:
    """One line, with the time since the begin."""
    print(f"{time.monotonic() - _BEGUN:7.0f} s  {text}", flush=True)


_BEGUN = time.monotonic()


class Rounds:
    """Rounds of the edge, until all is acknowledged or the receiver is gone."""

    def __init__(self, edge: Edge) -> None:
        self._edge = edge
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set() and not self._edge.round().quiet:
            continue

    def stop(self) -> None:
        """The receiver is gone."""
        self._stop.set()
        self._edge.stop.set()
        self._thread.join()
        self._edge.stop.clear()

    def wait(self) -> None:
        """Until all is acknowledged."""
        self._thread.join()


def there(centre: CopyingCentre) -> int:
    """Files that the running receiver has."""
    return int(centre.call("status")["files"])


def drill(centre: CopyingCentre, edge: Edge, given: argparse.Namespace) -> None:
    """Lose it, make it anew, and let the edge come, so often."""
    draws = random.Random(given.seed)
    marks = sorted(draws.randrange(given.files) for _ in range(given.kills - 1))
    for number in range(given.kills):
        mark = marks[number] if number < len(marks) else given.files
        load = Rounds(edge)
        if number == given.kills - 1:
            load.wait()
            settle(centre, given.files)
        else:
            while (had := there(centre)) < mark:
                time.sleep(0.2)
            say(f"{had} files are loaded")
        centre.lose_all()
        load.stop()
        acknowledged = set(edge.listed)
        say(f"lost; {len(acknowledged)} files were acknowledged")
        begin = time.monotonic()
        named = centre.restore()
        seconds = time.monotonic() - begin
        have = loaded(centre.root, edge.uuid).keys()
        known = {row.path: row.state for row in rows(centre.root, edge.uuid)}
        assert known.keys() == have | named
        assert {known[each] for each in named} <= {FileState.QUARANTINED}
        missing = len(acknowledged - have)
        say(
            f"restored {len(have)} files in {seconds:.0f} s ({len(have) / seconds:.0f}/s); "
            f"{len(named)} named, {missing} acknowledged ones to come again"
        )
        assert not (given.before_ack and missing), missing
        centre.start()
    Rounds(edge).wait()
    centre.stop()
    in_sync(edge, centre.root)
    say(f"both sides have the same {given.files} files")


def settle(centre: CopyingCentre, files: int) -> None:
    """Until the copies are there."""
    while (found := centre.call("storage", "status"))["waiting_files"]:
        time.sleep(1)
    while int(centre.call("storage", "status")["behind"]):
        time.sleep(1)
    say(f"{found['uploaded_files']} of {files} files are in the store")


def main() -> None:
    """Drill, and tell what was seen."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--task", type=int, default=20_000)
    parser.add_argument("--s3", action="store_true")
    parser.add_argument("--before-ack", action="store_true")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--at", type=Path, default=None)
    given = parser.parse_args()
    end_on_signals()
    logging.disable(logging.WARNING)  # of files that are wanted again there are many
    say(f"seed {given.seed}")
    with ExitStack() as stack:
        base = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=given.at)))
        store = None
        if given.s3:
            server = stack.enter_context(s3_server(base / "s3"))
            os.environ.update(AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=SECRET)
            store = (
                f'url = "s3://drill/centre"\nendpoint = "{server.endpoint}"\n'
                f'region = "{REGION}"\npath_style = true'
            )
        processes = stack.enter_context(children(base))
        centre = CopyingCentre(base / "centre", processes, before_ack=given.before_ack, store=store)
        edge = Edge(
            base / "edge",
            centre.start(),
            task_max_files=given.task,
            closed_by="tail",
            quiet_seconds=0.0,
        )
        for number in range(given.files):
            edge.write(number, resource=None)
        say(f"{given.files} files are written at the edge")
        drill(centre, edge, given)


if __name__ == "__main__":
    main()
