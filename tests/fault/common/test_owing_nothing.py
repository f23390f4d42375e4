"""What the rarer ways through the programs have done is on the disk when they are done.

Rounds are in `tests/system/test_order_of_steps.py`. Here are commands and repairs, one after the
other in one process, judged by the same eyes.
"""

from __future__ import annotations

import sys

import msgspec
import pytest

from common.durable import Tree
from receiver.transfer.receiving.partial import UploadMeta
from tests.support import trace
from tests.support.debts import Debts, Forgiven
from tests.support.procs import children
from tests.support.recording import Recorded

FORGIVEN = (
    Forgiven(r".*\.lock", ("bytes", "cut", "name"), "a lock is made anew, whatever is in it"),
    Forgiven(r".*/tlog-\d+\.tsf", ("bytes",), "the log has its bytes too"),
    Forgiven(r".*/device_owner\.log", ("bytes",), "the log's shadow", end=False),
)
SEEN = (
    "rename to back/received/", "rename to back/sequence/", "rename to older/mlog-",
    "rename to tlog/tlog-", "rename to anew/mtree.snapshot-", "rename to report/chunks.parquet",
    "rename to bucket/N/data/N/", "rename to restored/schema", "rename to restored/data/sequence/",
    "rename to centre/data/sync-receiver/", "rename to centre/data/sequence/",
    "rename to written/data/sync-receiver/",
)  # fmt: skip
PROGRAM = """
import sys
from pathlib import Path
from types import SimpleNamespace
from common import wire
from common.digests import md5, xxh3_64
from common.durable import Tree
from common.names import FilePath
from receiver.cli.commands import cli
from receiver.load.placing import move_back, replace_resource
from receiver.metadata import repair
from receiver.metadata.engine import Engine
from receiver.metadata.log.frames import encode_frame, encode_log_head, encode_payload
from receiver.metadata.model import records
from receiver.metadata.model.engine_options import EngineOptions
from receiver.operator.views.load_wire import CentreLoadRequest
from receiver.operator.views.write_wire import StagedPart, WriteRequest
from receiver.spark.report import summarise, write
from receiver.storage.cache.disk_cache import DiskCache
from receiver.storage.cache.file_fetching import FileFetcher
from receiver.storage.cache.store_place import StoreSource
from receiver.storage.cache.file_restore import restore_files
from receiver.storage.stores.incarnation import own_incarnation
from receiver.storage.log_copies.log_shipping import LogShipper
from receiver.storage.log_copies.metadata_restore import restore_metadata
from receiver.storage.stores.store_opening import open_store
from receiver.storage.uploading.uploader import Uploader
from receiver.transfer.receiving.partial import PartialUpload
from tests.support.metadata import A, B, load, seen
from tests.support.node_world import Clock, Edge, World, path_of, tsfile
from tests.support.remote_log import MemoryPlace, MemoryRemote
from tests.support.schema_commits import HISTORY
from tests.support import verifications

root = Path(sys.argv[1])

# init
elsewhere = str(root / "elsewhere")
cli.main(
    ["init", "--schema-dir", elsewhere, "--data-dir", elsewhere, str(root / "init" / "x.toml")],
    standalone_mode=False,
)

# files that go back: nothing else that is done there later flushes the names
alone = FilePath.parse("sequence/root.a/0/1/1-1-0-0.tsfile")
with Tree(root / "back") as tree:
    tree.sync_file(alone.text)
    move_back(tree, [("alone/1.tsfile", alone)])

# a resource in the place of what went back
moved = FilePath.parse("sequence/root.a/0/0/1-1-0-0.tsfile")
with Tree(root / "back") as tree:
    tree.sync_file(moved.text)
    move_back(tree, [("received/1.tsfile", moved)])
    for name in (f"{moved}", f"{moved}.resource", "received/1.tsfile.resource"):
        tree.write_atomic(name, name.encode())
    row = SimpleNamespace(physical=f"{moved}", data_dir="")
    replace_resource(tree, "received/1.tsfile.resource", [tree], row)
    assert tree.read(f"{moved}.resource") == b"received/1.tsfile.resource"

# an upload that an earlier process has left
with Tree(root / "left") as tree:
    assert PartialUpload.open(tree, "uploads", "e" * 32) is not None

# a log of the version before, and journal of owners
payload = encode_payload([(1 << 18, records.encode_ops([records.EngineMade("ee" * 16)]))])
with Tree(root / "older", create=True) as tree:
    content = encode_log_head(7, 1, version=1) + encode_frame(7, 1, payload)
    tree.write_atomic("mlog-1.tsf", content)
with Engine.open(root / "older", background=False) as engine:
    engine.commit([seen(), load()])

# a log that is damaged, and a tlog that is too short: cut, with what was there kept
def fill(name, remote=None):
    options = EngineOptions(history=0.0)
    with Engine.open(root / name, options=options, background=False, remote=remote) as engine:
        for ops in HISTORY:
            engine.commit(ops)
        engine.checkpoint()
        engine.commit([seen(B)])
        engine.commit([seen("cc" * 16)])

fill("log")
log = max((root / "log").glob("mlog-*.tsf"), key=lambda each: each.stat().st_mtime_ns)
content = bytearray(log.read_bytes())
content[60] ^= 16
with Tree(root / "log") as tree:
    tree.write_atomic(log.name, bytes(content))
assert repair.cut(root / "log")
fill("tlog")
with Tree(root / "tlog") as tree:
    tree.write_atomic("tlog-1.tsf", (root / "tlog" / "tlog-1.tsf").read_bytes()[:30])
assert repair.cut(root / "tlog")

# a directory made anew from a log that is elsewhere
place = MemoryPlace()
fill("away", MemoryRemote(place))
Engine.open(root / "anew", remote=MemoryRemote(place), background=False).close()

# the files of an engine give way to those of a log that is elsewhere
Engine.open(root / "older", remote=MemoryRemote(place), background=False).close()

# bytes go, then their row
clock = Clock()
metadata = {"history": 0.0}
world = World(root / "reaped", clock=clock, keep_deleted=100.0, metadata=metadata)
node = world.still_node()
edge = Edge(node)
edge.round({path_of(1): tsfile()}, resources={path_of(1): b"r"})
edge.round({}, [path_of(1)], propagate=wire.Propagate.ALL)
clock.now += 200
assert node.load.reaper.run_once() == 1
node.close()

# files of this machine, without an edge
old = root.parent / "old" / path_of(1)
old.parent.mkdir(parents=True)
old.write_bytes(tsfile())
old.with_name(old.name + ".resource").write_bytes(b"r")
node = World(root / "centre").still_node()
request = CentreLoadRequest(task="5" * 32, paths=[str(old)])
assert [each.result for each in node.operator.centre.load(request).files] == ["loaded"]
node.close()

# what a job writes
node = World(root / "written").still_node()
writes, task = node.operator.writes, "6" * 32
writes.open(task, WriteRequest(), None)
for attempt in ("7" * 32, "8" * 32):
    writes.put(task, attempt, 0, 0, memoryview(tsfile()), xxh3_64(tsfile()), None)
parts = {"attempt": attempt, "number": 0, "group": "root.sg", "partition": 0}
found = {"size": len(tsfile()), "md5": md5(tsfile()).hexdigest()}
writes.commit(task, [StagedPart(**parts, **found)], None)
while not (answer := node.operator.centre.answer(task, 5.0)).done:
    pass
assert [each.result for each in answer.files] == ["loaded"]
node.close()

# copies in a directory, and a receiver that is made of them
node = World(root / "copied").still_node()
engine = node.engine
Edge(node).round({path_of(1): tsfile()}, resources={path_of(1): b"r"})
Tree(root / "bucket", create=True).close()
store = open_store((root / "bucket").as_uri())
with Tree(root / "copied" / "schema") as home:
    owner = own_incarnation(store, home, engine.uuid)
    assert Uploader(engine, store, owner, home, node.load.disks.standing).run_once() == 1
    engine.checkpoint()
    assert LogShipper(engine.published, home, store, owner).ship()
node.close()
for name in ("restored", "unopened"):  # an engine that is opened there would flush the names
    restore_metadata(store, engine.uuid, root / name / "schema")
with Engine.open(root / "restored" / "schema", background=False) as engine:
    with Tree(root / "restored" / "data", create=True) as data:
        assert restore_files(store, engine, [data]).fetched == 1
    with Tree(root / "cache", create=True) as data:
        fetcher = FileFetcher(engine, [StoreSource(engine, store)], lambda: [data], DiskCache(None))
        with engine.reading() as state:
            rows = list(state.files.values())
        with fetcher.pinned(rows):
            assert data.exists(rows[0].physical)
        fetcher.close()
store.close()

# a report
result = verifications.rich()
write(root / "report", summarise(result), result)
"""


def test_commands_and_repairs_owe_nothing_when_they_are_done(tmp_path):
    if reason := trace.impossible():
        pytest.skip(reason)
    root = tmp_path / "root"
    with Tree(root / "back", create=True) as tree:
        tree.make_dirs("sequence/root.a/0/0")
        tree.write_atomic("sequence/root.a/0/0/1-1-0-0.tsfile", b"x")
        tree.make_dirs("sequence/root.a/0/1")
        tree.write_atomic("sequence/root.a/0/1/1-1-0-0.tsfile", b"x")
    upload = f"left/uploads/{'e' * 32}.upload"
    (root / upload).parent.mkdir(parents=True)
    meta = UploadMeta(id="e" * 32, sender="a" * 32, owner="o", path="p", length=9, created=0.0)
    (root / upload).write_bytes(msgspec.json.encode(meta) + b"\n")
    with children(tmp_path) as processes:
        recorded = Recorded(processes, tmp_path / "calls")
        child = recorded.start([sys.executable, "-c", PROGRAM, str(root)])
        assert child.wait() == 0, child.text()
        debts = Debts(root, FORGIVEN)
        debts.replaced(upload)
        debts.follow(recorded.steps(1))
    assert not debts.broken, "\n".join(debts.broken)
    assert upload not in debts.unflushed(), "it is relied on as it stands"
    assert not [each for each in SEEN if not any(each in word for word in debts.words)]
