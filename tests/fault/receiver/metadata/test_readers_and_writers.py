"""Readers during writes see one committed state, by way of the state, of cursors, of the past."""

import os
import random
import threading
import time
from collections import Counter

import pytest

from common.errors import TsferryError
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.engine_options import EngineOptions
from receiver.metadata.model.errors import HistoryGoneError, NotATagError
from receiver.metadata.sql.executing import execute
from tests.support import schema_view as view
from tests.support import tiers

SECONDS = float(os.environ.get("TSFERRY_READERS_SECONDS", "8" if tiers.is_long() else "2"))
PAIRS = 12
KINDS = ("write", "cursor", "tag", "count", "state")
OFTEN = 10


def create(device, names, **more):
    count = len(names)
    return records.SeriesCreated(
        device, names, b"\x03" * count, b"\x08" * count, b"\x01" * count, **more
    )


class World:
    """Writers keep pairs: what is in `root.left` is in `root.right`, with the same tag and key."""

    def __init__(self, engine):
        self.engine = engine
        self.end = time.monotonic() + SECONDS
        self.problems = []
        self.done = Counter()

    def is_over(self):
        """After its time, and when all have been at it for long enough; on a busy machine later."""
        now = time.monotonic()
        all_did = all(self.done[what] > OFTEN for what in KINDS)
        return bool(self.problems) or now >= self.end + 60 or (now >= self.end and all_did)

    def loop(self, what, work):
        def run():
            randomly = random.Random(what)
            turn = 0
            while not self.is_over():
                turn += 1
                try:
                    work(randomly, turn)
                except HistoryGoneError:
                    continue
                except BaseException as error:
                    self.problems.append((what, error))
                    return
                self.done[what.split()[0]] += 1

        return threading.Thread(target=run, name=what)

    # -- writers --

    def write(self, randomly, turn):
        pair = f"p{randomly.randrange(PAIRS)}"
        left, right = f"root.left.{pair}", f"root.right.{pair}"
        tags = [{"turn": f"{turn % 50}"}]
        choice = randomly.randrange(5)
        ops = {
            0: [create(left, ["s"], tags=tags), create(right, ["s"], tags=tags)],
            1: [records.SeriesDeleted(f"{left}.s"), records.SeriesDeleted(f"{right}.s")],
            # Who checks this one walks over all nodes, while readers do.
            4: [records.SeriesDeleted(f"root.**.{pair}.s")],
            2: [
                records.TagsSet(f"{left}.s", tags[0], {}),
                records.TagsSet(f"{right}.s", tags[0], {}),
            ],
            3: [records.KeysWritten([pair], {f"{pair}/l": f"{turn}", f"{pair}/r": f"{turn}"})],
        }[choice]
        try:
            self.engine.commit(ops)
        except TsferryError:
            return  # another writer was there first

    def checkpoint(self, _, __):
        self.engine.checkpoint()
        time.sleep(0.05)

    # -- readers --

    def at(self, randomly):
        return self.engine.newest_commit if randomly.random() < 0.5 else None

    def by_cursor(self, randomly, _):
        size = randomly.choice([1, 3, 1000])
        result = execute(
            self.engine, "show timeseries root.**", at=self.at(randomly), fetch_size=size
        )
        names = list(result.columns)
        found = [dict(zip(names, row, strict=True)) for row in result]
        sides = {"left": {}, "right": {}}
        for row in found:
            _, side, pair, _ = row["timeseries"].split(".")
            assert pair not in sides[side], f"{row['timeseries']} is shown twice"
            sides[side][pair] = row["tags"]
        if sides["left"] != sides["right"]:
            again = list(execute(self.engine, "show timeseries root.**", at=result.commit))
            raise AssertionError((size, result.commit, self.engine.newest_commit, found, again))

    def by_tag(self, randomly, _):
        value = randomly.randrange(50)
        try:
            result = execute(
                self.engine,
                f"show timeseries where turn='{value}'",
                at=self.at(randomly),
                fetch_size=2,
            )
            paths = [row[0] for row in result]
        except NotATagError:
            return  # no series has one at this moment
        left = [path.split(".")[2] for path in paths if ".left." in path]
        right = [path.split(".")[2] for path in paths if ".right." in path]
        assert left == right, paths

    def by_count(self, randomly, _):
        at = self.at(randomly)
        rows = list(execute(self.engine, "count timeseries root group by level=1", at=at))
        assert len({count for _, count in rows}) <= 1, rows

    def by_state(self, _, __):
        seen = view.of_engine(self.engine)
        left = {nodes[2:] for nodes in seen["series"] if nodes[1] == "left"}
        right = {nodes[2:] for nodes in seen["series"] if nodes[1] == "right"}
        assert left == right
        for nodes, row in seen["series"].items():
            assert row["labels"][0] == row["indexed"], nodes
        keys = dict(zip(*seen["keys"], strict=True))
        for key, value in keys.items():
            assert keys[key[:-1] + ("r" if key.endswith("l") else "l")] == value


@pytest.mark.slow
def test_readers_see_pairs_whole_whatever_is_written_meanwhile(tmp_path):
    options = EngineOptions(history=1.0, checkpoint_rest=1e9)
    with Engine.open(tmp_path / "schema", options=options) as engine:
        engine.commit([records.StorageGroupSet("root.left"), records.StorageGroupSet("root.right")])
        world = World(engine)
        threads = [
            *(world.loop(f"write {number}", world.write) for number in range(4)),
            world.loop("checkpoint", world.checkpoint),
            *(world.loop(f"cursor {number}", world.by_cursor) for number in range(2)),
            world.loop("tag", world.by_tag),
            world.loop("count", world.by_count),
            world.loop("state", world.by_state),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS + 120)
            assert not thread.is_alive(), f"{thread.name} hangs"
        assert not world.problems, world.problems
        assert all(world.done[what] > OFTEN for what in KINDS), world.done
        expected = view.of_engine(engine)
    with Engine.open(tmp_path / "schema", options=options) as again:
        assert view.of_engine(again) == expected
