"""The order of system calls of a commit and of a checkpoint: what is relied on is on the disk."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

from tests.fault.common.test_order import steps
from tests.support import trace

IMPORTS = """
from receiver.metadata.model import records
from receiver.metadata.engine import Engine
from receiver.metadata.model.engine_options import EngineOptions
"""
BEGIN = """
engine = Engine.open(root / "schema", options=EngineOptions(history=0.0), background=False)
def commit(name):
    made = records.SeriesCreated(
        "root.t." + name, ["s"], b"\\3", b"\\x08", b"\\1", tags=[{"n": name}]
    )
    engine.commit([records.StorageGroupSet("root.t", if_missing=True), made])
"""
TO_CHECKPOINT = """
commit("a"), engine.checkpoint(), commit("b"), engine.checkpoint(), commit("c"), engine.collect()
attempt("mark", lambda: (root / "mark").write_bytes(b"x"))
attempt("it", engine.checkpoint)
"""
TO_COMMIT = """
commit("a")
attempt("mark", lambda: (root / "mark").write_bytes(b"x"))
attempt("it", lambda: commit("b"))
"""


def traced(program, root):
    """The calls behind the mark, in short; writes in a row, and flushes in a row, are one."""
    run = trace.run(BEGIN + program, root, imports=IMPORTS)
    assert run.outcome("it") == "done", run
    begin = max(at for at, call in enumerate(run.calls) if f"{root}/mark" in call.arguments)
    found = [
        (name.removesuffix("2") if name.startswith("openat") else name, short(target))
        for name, target in steps(replace(run, calls=run.calls[begin + 1 :]), root)
    ]
    return [each for each, _ in itertools.groupby(found)]


def short(target):
    return re.sub(r"\d+", "N", target.removeprefix("schema").lstrip("/"))


def test_a_commit_with_tags_is_acknowledged_when_the_log_is_flushed(tmp_path):
    assert traced(TO_COMMIT, tmp_path) == [
        ("pwrite64", "tlog-N.tsf"),
        ("write", "mlog-N.tsf"),
        ("fdatasync", "mlog-N.tsf"),
    ]


def test_a_checkpoint_is_proven_before_anything_goes(tmp_path):
    assert traced(TO_CHECKPOINT, tmp_path) == [
        # a new segment
        ("openat", ""),
        ("pwrite64", "TMP"),
        ("fsync", "TMP"),
        ("renameat", ""),
        ("fsync", ""),
        # what lets go of the log relies on the tlog
        ("fsync", "tlog-N.tsf"),
        # the checkpoint itself
        ("openat", ""),
        ("pwrite64", "TMP"),
        ("fsync", "TMP"),
        ("renameat", ""),
        ("fsync", ""),
        # the oldest checkpoint, then the segment that only it needed
        ("unlinkat", ""),
        ("fsync", ""),
        ("unlinkat", ""),
        ("fsync", ""),
    ]


def test_what_the_start_reads_of_a_log_was_flushed_before(tmp_path):
    """Only clean pages can be dropped, so that what is read is what the disk has."""
    run = trace.run(BEGIN + 'commit("a"), engine.close()', tmp_path, imports=IMPORTS)
    assert run.returncode == 0, run
    opening = 'attempt("it", lambda: Engine.open(root / "schema", background=False))'
    run = trace.run(opening, tmp_path, imports=IMPORTS)
    assert run.outcome("it") == "done", run
    of_log = [call for call in run.calls if "mlog-1.tsf" in call.arguments + call.result]
    to_go_on = next(at for at, call in enumerate(of_log) if "O_APPEND" in call.arguments)
    assert "fsync" in [call.name for call in of_log[:to_go_on]]
