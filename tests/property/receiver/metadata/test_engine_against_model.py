"""The engine against plain dictionaries, with restarts and torn logs in between.

The model knows the rules by itself: for any commit it says whether it must be refused, and what is
true afterwards. Names are few, so that commits meet.
"""

from __future__ import annotations

import copy
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from common.errors import ConflictError
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.engine_options import EngineOptions
from receiver.metadata.model.errors import RefusedCommitError
from receiver.metadata.state.table_rows import FileState
from receiver.metadata.state.tables.file_tables.file_index import GroupKey
from tests.support import tiers
from tests.support.metadata import A, B, has_commit, load, log_file, path, physical, seen, token

PATHS = [path("1-1-0"), path("2-2-0"), path("1-1-1", part=1)]
DEVICES = ["root.t.d1", "root.t.d2", "root.t.d3"]
TASKS = [f"{number:032x}" for number in range(3)]
SENDERS = [A, B]
VISIBLE = (FileState.LIVE, FileState.RETIRED)
MARK = 4
"""Bytes at the end of a frame that its check does not need."""

senders = st.sampled_from(SENDERS)
paths = st.sampled_from(PATHS)
tags = st.integers(0, 12)
names = st.builds(physical, paths, tags)
spans = st.tuples(st.integers(0, 5), st.integers(5, 9))
devices = st.dictionaries(st.sampled_from(DEVICES), spans | st.none(), max_size=3)
digests = st.sampled_from(["00", "01"])

RESOURCE = records.ResourceMeta(8, "00")
SIZE = load().size
CHANGES = [
    lambda name: records.FileDeleted(name, "gone"),
    records.FileRetired,
    records.FileReturned,
    lambda name: records.FileQuarantined(name, "bad"),
    records.FileRestored,
    records.FileForgotten,
    lambda name: records.FileVerified([name]),
    lambda name: records.ResourceNoted(name, RESOURCE),
    lambda name: records.FileUploaded(name, 1, SIZE, ""),
    records.ObjectRemoved,
]
WAYS = [None, CHANGES[0], records.FileRetired]

operations = st.one_of(
    st.builds(seen, senders, st.sampled_from(["one", "two"])),
    st.builds(records.EpochSet, senders, st.just("2.x"), st.just("1.x"), st.none(), st.booleans()),
    st.builds(token, st.sampled_from(["t1", "t2"])),
    st.builds(records.TokenRevoke, st.sampled_from(["t1", "t2"])),
    st.builds(records.OwnerSet, st.sampled_from(DEVICES), senders | st.none(), st.just("why")),
    st.builds(
        lambda p, tag, sender, spans: load(p, tag, sender=sender, devices=spans),
        paths,
        tags,
        senders,
        devices,
    ),
    st.builds(records.FileDeleted, names, st.just("gone")),
    st.builds(records.FileRetired, names),
    st.builds(records.FileReturned, names),
    st.builds(records.FileQuarantined, names, st.just("bad")),
    st.builds(records.FileRestored, names),
    st.builds(records.FileForgotten, names),
    st.builds(records.FileVerified, st.lists(names, min_size=1, max_size=3, unique=True)),
    st.builds(records.ResourceNoted, names, st.just(RESOURCE)),
    st.builds(
        lambda name, resource: records.FileUploaded(name, 1, SIZE, "", resource),
        names,
        st.sampled_from(["", "00"]),
    ),
    st.builds(records.ObjectRemoved, names),
    st.builds(records.TaskDone, senders, st.sampled_from(TASKS), st.just([])),
    st.builds(
        records.QuarantinePut, senders, paths, digests, st.just(1), st.booleans(), st.just("why")
    ),
    st.builds(records.QuarantineDrop, senders, paths, digests),
)


class Refused(Exception):
    pass


def need(holds):
    if not holds:
        raise Refused


class Model:
    def __init__(self):
        self.senders: dict = {}
        self.tokens: set = set()
        self.owners: dict = {}
        self.files: dict = {}
        self.tasks: dict = {}
        self.quarantine: dict = {}
        self.uploaded: dict = {}
        self.ended: set = set()

    def take(self, op):
        getattr(self, type(op).__name__)(op)

    def SenderSeen(self, op):
        self.senders[op.uuid] = {**self.senders.get(op.uuid, {}), "label": op.label}

    def EpochSet(self, op):
        need(op.sender in self.senders)
        self.senders[op.sender] = {
            **self.senders[op.sender],
            "epoch": (op.current, op.previous, op.task, op.confirmed),
        }

    def TokenPut(self, op):
        need(op.id not in self.tokens)
        self.tokens.add(op.id)

    def TokenRevoke(self, op):
        need(op.id in self.tokens)
        self.tokens.remove(op.id)

    def OwnerSet(self, op):
        if op.sender is None:
            need(op.device in self.owners)
            del self.owners[op.device]
        else:
            need(op.sender in self.senders)
            self.owners[op.device] = op.sender

    def FileLoaded(self, op):
        need(op.sender in self.senders)
        need(op.physical not in self.files)
        need(
            not any(
                (each["sender"], each["path"]) == (op.sender, op.path) and each["held"]
                for each in self.files.values()
            )
        )
        for device in op.devices:
            need(self.owners.setdefault(device.name, op.sender) == op.sender)
        self.files[op.physical] = {
            "sender": op.sender,
            "path": op.path,
            "state": "live",
            "held": True,
            "verified": False,
            "order": (-1 if op.first is None else op.first, -1 if op.last is None else op.last),
        }

    def _file(self, op, *states):
        file = self.files.get(op.physical)
        need(file is not None and file["state"] in states)
        return file

    def FileDeleted(self, op):
        file = self._file(op, "live", "retired", "quarantined")
        file.update(state="deleted", held=False)

    def FileRetired(self, op):
        file = self._file(op, "live", "quarantined")
        need(file["held"])
        file["held"] = False
        if file["state"] == "live":
            file["state"] = "retired"

    def FileReturned(self, op):
        file = self._file(op, "retired")
        need(
            not any(
                (each["sender"], each["path"]) == (file["sender"], file["path"]) and each["held"]
                for each in self.files.values()
            )
        )
        file.update(state="live", held=True)

    def FileQuarantined(self, op):
        self._file(op, "live", "retired").update(state="quarantined", verified=False)

    def FileRestored(self, op):
        file = self._file(op, "quarantined")
        file["state"] = "live" if file["held"] else "retired"

    def FileVerified(self, op):
        for name in op.physicals:
            self._file(records.FileForgotten(name), "live", "retired")["verified"] = True

    def ResourceNoted(self, op):
        self._file(op, "live", "retired", "quarantined")["resource"] = op.resource

    def FileForgotten(self, op):
        self._file(op, "deleted")
        del self.files[op.physical]
        self.ended |= {op.physical} & self.uploaded.keys()

    def FileUploaded(self, op):
        need(op.physical in self.files)
        need(self.uploaded.get(op.physical) != op.resource)
        self.uploaded[op.physical] = op.resource
        self.ended.discard(op.physical)

    def ObjectRemoved(self, op):
        need(op.physical in self.ended)
        self.ended.remove(op.physical)
        del self.uploaded[op.physical]

    def TaskDone(self, op):
        need(op.sender in self.senders)
        need((op.sender, op.task) not in self.tasks)
        self.tasks[op.sender, op.task] = True

    def QuarantinePut(self, op):
        need(op.sender in self.senders)
        self.quarantine[op.sender, op.path, op.digest] = op.hold

    def QuarantineDrop(self, op):
        need((op.sender, op.path, op.digest) in self.quarantine)
        del self.quarantine[op.sender, op.path, op.digest]

    # -- what must be seen --

    def view(self):
        visible = [
            name for name, file in self.files.items() if file["state"] in ("live", "retired")
        ]
        groups: dict = {}
        for name in visible:
            key = tuple(name.split("/")[:4])
            groups.setdefault(key, []).append((*self.files[name]["order"], name))
        return {
            "senders": {
                uuid: (row["label"], row.get("epoch", (None, None, None, False)))
                for uuid, row in self.senders.items()
            },
            "tokens": self.tokens,
            "owners": self.owners,
            "states": {name: file["state"] for name, file in self.files.items()},
            "catalogue": sorted(visible),
            "verified": sorted(name for name, file in self.files.items() if file["verified"]),
            "numbers of verified": {
                sender: sum(
                    file["verified"] and file["sender"] == sender
                    for name, file in self.files.items()
                    if name in visible
                )
                for sender in self.senders
            },
            "groups": {key: [each[2] for each in sorted(rows)] for key, rows in groups.items()},
            "inventories": {
                sender: sorted(
                    file["path"]
                    for file in self.files.values()
                    if file["sender"] == sender and file["held"]
                )
                for sender in self.senders
            },
            "wanted": {
                sender: sorted(
                    name
                    for name, file in self.files.items()
                    if file["sender"] == sender and file["held"] and file["state"] == "quarantined"
                )
                for sender in self.senders
            },
            "deleted": sorted(n for n, file in self.files.items() if file["state"] == "deleted"),
            "files": len(visible),
            "tasks": set(self.tasks),
            "quarantine": self.quarantine,
            "uploaded": (self.uploaded, sorted(self.ended), SIZE * len(self.uploaded)),
        }


def view(engine):
    with engine.reading() as state:
        for each in FileState:
            alike = VISIBLE if each in VISIBLE else (each,)
            listed = [row.physical for row in state.file_table.among(each, None, 1000)]
            assert listed == sorted(n for n, row in state.files.items() if row.state in alike)
        assert state.owner_table.page(None, 1000) == sorted(state.owners.items())
        return {
            "senders": {
                row.uuid: (row.label, (row.epoch, row.previous, row.epoch_task, row.confirmed))
                for row in state.senders.values()
            },
            "tokens": set(state.tokens),
            "owners": {device: row.sender for device, row in state.owners.items()},
            "states": {name: str(row.state) for name, row in state.files.items()},
            "catalogue": [row.physical for row in state.file_table.catalogue(None, 1000)],
            "verified": sorted(row.physical for row in state.files.values() if row.verified),
            "numbers of verified": {
                sender: state.file_table.verified(sender) for sender in state.senders
            },
            "groups": {
                tuple(key): [row.physical for row in state.file_table.group(key)]
                for key in map(GroupKey.of, state.file_table.directories())
            },
            "inventories": {
                sender: [row.path for row in state.file_table.inventory(sender, None, 1000)]
                for sender in state.senders
            },
            "wanted": {
                sender: sorted(row.physical for row in state.file_table.wanted(sender))
                for sender in state.senders
            },
            "deleted": sorted(row.physical for row in state.file_table.deleted()),
            "files": state.file_table.totals().files,
            "tasks": {(s, t) for s in state.senders for t in TASKS if state.task_table.has(s, t)},
            "quarantine": {key: row.hold for key, row in state.quarantine.items()},
            "uploaded": (
                {row.physical: row.resource for row in state.uploaded_table.rows.values()},
                sorted(state.uploaded_table.ended),
                state.uploaded_table.bytes,
            ),
        }


class EngineAgainstModel(RuleBasedStateMachine):
    @initialize()
    def begin(self):
        shm = Path("/dev/shm")
        self.home = Path(tempfile.mkdtemp(dir=shm if shm.is_dir() else None))
        self.now = 1_000_000.0
        self.tag = 100
        self.model = Model()
        self.engine = self.open()
        self.stamps = [self.engine.newest_commit]
        self.sizes = [log_file(self.home).stat().st_size]
        self.models = [copy.deepcopy(self.model)]
        self.commit([seen(A), seen(B)])

    def open(self):
        options = EngineOptions(history_commits=1_000_000)  # whatever the clock says
        return Engine.open(self.home, clock=lambda: self.now, options=options)

    def commit(self, ops):
        after = copy.deepcopy(self.model)
        try:
            for op in ops:
                after.take(op)
        except Refused:
            after = None
        if after is None:
            with pytest.raises((RefusedCommitError, ConflictError)):
                self.engine.commit(ops)
            assert log_file(self.home).stat().st_size == self.sizes[-1]
            return
        ts = self.engine.commit(ops)
        assert ts > self.stamps[-1]
        self.model = after
        self.stamps.append(ts)
        self.sizes.append(log_file(self.home).stat().st_size)
        self.models.append(copy.deepcopy(after))

    @rule(ops=st.lists(operations, min_size=1, max_size=4))
    def commits(self, ops):
        self.commit(ops)

    @rule(sender=senders, logical=paths, spans=devices, way=st.sampled_from(WAYS))
    def loads(self, sender, logical, spans, way):
        """A fresh name; a path that is taken is freed before, or the load must be refused."""
        with self.engine.reading() as state:
            held = state.file_table.held(sender, logical)
        before = [way(held.physical)] if held and way else []
        self.tag += 1
        self.commit([*before, load(logical, self.tag, sender=sender, devices=spans)])

    @precondition(lambda self: self.model.files)
    @rule(data=st.data(), changes=st.lists(st.sampled_from(CHANGES), min_size=1, max_size=3))
    def file_lives_on(self, data, changes):
        """Steps in the life of one file, sensible or not, in one commit or several."""
        name = data.draw(st.sampled_from(sorted(self.model.files)), label="file")
        ops = [change(name) for change in changes]
        if data.draw(st.booleans(), label="in one commit"):
            self.commit(ops)
        else:
            for op in ops:
                self.commit([op])

    @rule(jump=st.sampled_from([-1e6, -1.0, 0.001, 60.0, 1e9]))
    def clock_jumps(self, jump):
        self.now += jump

    @rule()
    def restarts(self):
        self.engine.close()
        self.engine = self.open()

    @precondition(lambda self: len(self.sizes) > 2)
    @rule(data=st.data())
    def loses_power(self, data):
        """Whatever is left of the last frames, and whatever stands behind: a prefix of commits."""
        self.engine.close()
        begin = self.sizes[-3]
        size = data.draw(
            st.integers(begin, self.sizes[-1]) | st.integers(self.sizes[-1] - 6, self.sizes[-1]),
            label="size",
        )
        tail = data.draw(
            st.sampled_from([b"", bytes(700), b"garbage", b"TSFm\xff\xff"]), label="tail"
        )
        before = log_file(self.home).read_bytes()
        left = before[:size] + tail
        log_file(self.home).write_bytes(left)
        while self.sizes[-1] > size:
            end = self.sizes[-1]
            if len(left) >= end and left[: end - MARK] == before[: end - MARK]:
                break  # only the mark is lost: the commit is whole, and counts
            self.sizes.pop()
            self.stamps.pop()
            self.models.pop()
        self.model = copy.deepcopy(self.models[-1])
        self.engine = self.open()
        assert self.engine.newest_commit == self.stamps[-1]
        assert log_file(self.home).stat().st_size == self.sizes[-1]

    @invariant()
    def shows_what_was_committed(self):
        assert view(self.engine) == self.model.view()
        assert self.engine.newest_commit == self.stamps[-1]
        assert all(has_commit(self.engine, each) for each in self.stamps)

    @rule()
    def reads_beside_it(self):
        with Engine.read_only(self.home) as reader:
            assert view(reader) == self.model.view()

    def teardown(self):
        if hasattr(self, "engine"):
            self.engine.close()
            shutil.rmtree(self.home)


EngineAgainstModel.TestCase.settings = settings(
    max_examples=tiers.examples(60),
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestEngineAgainstModel = EngineAgainstModel.TestCase
