"""How long others wait while a load at the centre of very many files is judged and committed.

    .venv/bin/python scripts/bench/load_decision.py [--files 1000] [--dir DIR] [--json]

One receiver, in this process. A thread loads a directory of small TsFiles, each of a device of its
own; meanwhile three threads do small things over and over, as beside a large commit
(`large_commit.py`): a commit, a look at a file and a sender, a question to the schema. Told are the
longest that each of them waited, while the load was compared and while it was loaded; and the
seconds of a processor of both decisions.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from receiver.config import LimitsConfig, ReceiverConfig
from receiver.load import loading
from receiver.metadata.model import records
from receiver.node import Node
from receiver.operator.centre.load_judge import LoadJudge
from receiver.operator.views.load_wire import CentreLoadRequest
from scripts.bench.large_commit import SENDER, Longest, Others
from tests.support.tsfile_bytes import build


def lay(root: Path, files: int) -> None:
    """Files as a database lays them, in one partition."""
    place = root / "sequence" / "root.sg" / "0" / "0"
    place.mkdir(parents=True)
    for number in range(files):
        content = build({f"root.sg.site{number % 100}.d{number}": {"s1": [(number + 1, number)]}})
        (place / f"{number + 1}-{number + 1}-0-0.tsfile").write_bytes(content)


class Watched(Others):
    """The longest waits by what the load does just then."""

    def __init__(self, node: Node) -> None:
        super().__init__(node.engine)
        self._centre = node.operator.centre
        self.by_step: dict[tuple[str, str], float] = {}

    def step(self) -> str:
        """What the load does."""
        for each in self._centre.under_way():
            if each.progress is not None:
                return each.progress.step
        return "nothing"

    def _repeat(self, name: str, work: object) -> None:
        while not self._stop.wait(0.002):
            step, begin = self.now, time.perf_counter()
            work()  # type: ignore[operator]
            key = step, name
            self.by_step[key] = max(self.by_step.get(key, 0.0), time.perf_counter() - begin)

    now = "nothing"


def measure(directory: Path, files: int) -> dict[str, float]:
    """The longest waits, in seconds."""
    lay(directory / "old", files)
    config = ReceiverConfig(
        schema_dir=directory / "schema",
        data_dirs=(directory / "data",),
        limits=LimitsConfig(min_free_bytes=0),
    )
    with Node.open(config) as node:
        node.engine.commit([records.SenderSeen(SENDER, "bench", f"127.0.0.1_{SENDER}")])
        node.engine.commit([records.StorageGroupSet("root.other")])
        small = records.SeriesCreated("root.other.d1", ("s1",), b"\1", b"\0", b"\1")
        node.engine.commit([small])
        judged, decided = Longest(LoadJudge, "_decided"), Longest(loading, "_decide")
        LoadJudge._decided = lambda *given: judged(*given)  # type: ignore[method-assign]
        others = Watched(node)
        request = CentreLoadRequest(task="b" * 32, paths=[str(directory / "old")])
        with others.all_along():
            begin = time.perf_counter()
            node.operator.centre.begin(request)
            while not (answer := node.operator.centre.answer(request.task, 0.02)).done:
                Watched.now = "" if answer.progress is None else answer.progress.step
            whole = time.perf_counter() - begin
            Watched.now = "nothing"
        assert {each.result for each in answer.files} == {"loaded"}
    found = {f"{step}: longest {name}": each for (step, name), each in others.by_step.items()}
    found |= {"CPU of the judgement": judged.seconds, "CPU of the decision": decided.seconds}
    return {**found, "the load itself": whole}


def main() -> None:
    """Measure, and tell."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--files", type=int, default=1000)
    options.add_argument("--dir", type=Path, help="where everything goes")
    options.add_argument("--json", action="store_true")
    args = options.parse_args()
    with tempfile.TemporaryDirectory(dir=args.dir) as name:
        found = measure(Path(name), args.files)
    if args.json:
        print(json.dumps({**found, "load": os.getloadavg()[0]}))
        return
    for what, seconds in sorted(found.items()):
        print(f"{what}: {seconds:.3f} s")
    print(f"{args.files} files, {threading.active_count()} threads, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
