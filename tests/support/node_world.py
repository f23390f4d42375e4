"""A receiver's node without a network, and an edge that speaks to it as a sender does.

world = World(tmp_path)
with world.node() as node:
    edge = Edge(node, uuid="a" * 32)
    outcome = edge.round({path: content}, deleted=[...])
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from common import wire
from common.digests import xxh3_64
from common.durable import Tree
from common.hooks.hooks_config import HooksConfig
from common.tsfile import read_tail
from common.tsfile.proving import series_proofs
from common.tsfile.tail_digest import tail_digest
from receiver.config import (
    DeletesConfig,
    LimitsConfig,
    LoadConfig,
    MergeConfig,
    MetadataConfig,
    NodesConfig,
    ReceiverConfig,
    StorageConfig,
)
from receiver.load.service import LoadService
from receiver.load.upkeep.fsck import examine
from receiver.load.upkeep.fsck_findings import Report
from receiver.metadata.clock.machine_clock import MachineClock
from receiver.node import Node
from receiver.open_engine import open_engine
from receiver.principal import Principal
from receiver.transfer.begun.look_numbers import latest_look
from tests.support.tsfile_bytes import build

A, B = "a" * 32, "b" * 32
OPERATOR = Principal("operator", None, (), "op", "127.0.0.1")
READER = Principal("reader", None, (), "rd", "127.0.0.1")


def sender(uuid: str = A, *, scope: Iterable[str] = (), token: str | None = None) -> Principal:
    """Without a token it is one that this receiver lets in as it is."""
    return Principal("sender", uuid, tuple(scope), token, "10.0.0.7")


class Clock:
    """A clock that a test moves."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class GoingClock(Clock):
    """A clock that goes on by itself: by it a pause of a thread comes to its end."""

    def __init__(self) -> None:
        super().__init__()
        self._begin = time.monotonic()

    def __call__(self) -> float:
        return self.now + time.monotonic() - self._begin


class _Usual(Clock):
    """Of a world that was told no clock."""


@dataclass
class World:
    """The directories of a receiver, over as many lives of its process as a test wants.

    `metadata` are members of `MetadataConfig`, `deletes` of `DeletesConfig`: no guard, as it is;
    `storage` of `StorageConfig`, `merge` of `MergeConfig`, `nodes` of `NodesConfig`, `load` of
    `LoadConfig`; `hooks` is the whole of that table.
    `clock` stands still, but with a store: a file that could not be read at once is uploaded after
    a pause by that clock.
    `steady` is the clock that nobody sets, which goes as `clock` does unless a test says otherwise.
    """

    root: Path
    limits: Mapping[str, Any] = field(default_factory=dict)
    keep_deleted: float = 3600.0
    reveal_owner: bool = False
    clock: Callable[[], float] = field(default_factory=_Usual)
    steady: Callable[[], float] | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    deletes: Mapping[str, Any] = field(default_factory=lambda: {"max_fraction": 1.0})
    storage: Mapping[str, Any] = field(default_factory=dict)
    merge: Mapping[str, Any] = field(default_factory=dict)
    hooks: HooksConfig = field(default_factory=HooksConfig)
    nodes: Mapping[str, Any] = field(default_factory=dict)
    load: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.storage and isinstance(self.clock, _Usual):
            self.clock = GoingClock()

    @property
    def config(self) -> ReceiverConfig:
        config = ReceiverConfig(
            schema_dir=self.root / "schema",
            data_dirs=(self.root / "data", self.root / "data2"),
            limits=LimitsConfig(**{"min_free_bytes": 0, **self.limits}),
            load=LoadConfig(**{"keep_deleted": self.keep_deleted, **self.load}),
            metadata=MetadataConfig(**self.metadata),
            deletes=DeletesConfig(**self.deletes),
            storage=StorageConfig(**self.storage),
            merge=MergeConfig(**self.merge),
            hooks=self.hooks,
            nodes=NodesConfig(**self.nodes),
        )
        auth = msgspec.structs.replace(config.auth, reveal_owner=self.reveal_owner)
        return msgspec.structs.replace(config, auth=auth)

    def node(self) -> Node:
        return Node.open(self.config, clock=self.clock, monotonic=self.steady)

    def still_node(self) -> Node:
        """A node without threads: loads run in the thread that waits for them."""
        engine = open_engine(self.config, MachineClock.of(self.clock, self.steady))
        try:
            load = LoadService.open(self.config, engine)
            node = Node(self.config, engine, load)
            node.uploads.recover()
        except BaseException:
            engine.close()
            raise
        return node

    @property
    def data(self) -> Path:
        return self.root / "data"

    def folder(self, uuid: str = A) -> Path:
        (found,) = (self.data / "sync-receiver").glob(f"*_{uuid}")
        return found

    def loaded(self) -> dict[str, bytes]:
        """Physical path -> bytes of everything in the loaded directories."""
        return {
            each.relative_to(self.data).as_posix(): each.read_bytes()
            for kind in ("sequence", "unsequence")
            for each in sorted((self.data / kind).rglob("*"))
            if each.is_file()
        }


def fsck_of(node: Node) -> Report:
    """What a check of the directories finds beside the node that has them open."""
    with Tree(node.config.schema_dir) as schema:
        return examine(node.engine, node.load.disks.trees, schema)


def tsfile(device: str = "root.sg.d1", *, first: int = 1, points: int = 5, salt: int = 0) -> bytes:
    """A TsFile of one device; another salt gives other content."""
    times = range(first, first + points)
    return build({device: {"s1": [(time, time * 10 + salt) for time in times]}})


def path_of(number: int = 1, *, sg: str = "root.sg", partition: int = 0, inner: int = 0) -> str:
    return f"sequence/{sg}/0/{partition}/{1_600_000_000_000 + number}-{number}-{inner}.tsfile"


def plan_entry(path: str, content: bytes, **more: Any) -> wire.PlanEntry:
    tail = read_tail(content)
    given = {
        "path": path,
        "size": len(content),
        "tail": tail_digest(content),
        "md5": hashlib.md5(content).hexdigest(),
        "devices": [each.name for each in tail.devices],
        **more,
    }
    return wire.PlanEntry(**given)


def proof_entry(content: bytes) -> wire.ProofEntry:
    table = series_proofs(content, read_tail(content))
    return wire.ProofEntry(root=table.root, table=table.pack())


def manifest_entry(path: str, content: bytes, *, proof: bool = True) -> wire.ManifestEntry:
    tail = read_tail(content)
    return wire.ManifestEntry(
        path=path,
        size=len(content),
        md5=hashlib.md5(content).hexdigest(),
        series=tail.series_count,
        points=tail.point_count,
        proof=proof_entry(content) if proof and tail.complete else None,
    )


def resource_entry(content: bytes) -> wire.ResourceEntry:
    return wire.ResourceEntry(size=len(content), md5=hashlib.md5(content).hexdigest())


def batch_of(files: Mapping[str, bytes]) -> bytes:
    return wire.encode_batch(
        (
            wire.BatchEntry(
                path=path,
                size=len(content),
                md5=hashlib.md5(content).hexdigest(),
                xxh3=xxh3_64(content),
            ),
            content,
        )
        for path, content in files.items()
    )


@dataclass
class Edge:
    """A sender: its memory of the receiver, and its rounds."""

    node: Node
    uuid: str = A
    who: Principal = None  # type: ignore[assignment]
    epoch: str | None = None
    engine: str | None = None
    last_task: wire.TaskMark | None = None
    newest: int = 0
    mode: wire.Propagate | None = None
    """What was committed of it; another one is told in a task of its own, which ends nothing."""

    def __post_init__(self) -> None:
        if self.who is None:
            self.who = sender(self.uuid)

    def check(self) -> wire.CheckAnswer:
        request = wire.CheckRequest(
            protocol=1,
            version="0",
            sender=self.uuid,
            partition_interval_ms=self.node.config.partition_interval_ms,
            engine=self.engine,
            epoch=self.epoch,
            last_task=self.last_task,
            newest_commit=self.newest,
        )
        answer = self.node.checks.check(self.who, request)
        self.engine = answer.engine
        self.newest = max(self.newest, answer.newest_commit)
        return answer

    def start(
        self,
        task: str | None = None,
        propagate: wire.Propagate = wire.Propagate.REPLACED,
        *,
        settle: bool = True,
        look: int | None = None,
        anew: bool = False,
    ) -> str:
        """Start a task; one that is not given a look has the latest that there can be."""
        task = task or secrets.token_hex(16)
        if self.last_task is not None and propagate is not self.mode and settle:
            empty = self.start(None, propagate, settle=False)
            self.end(empty, {})
            self.outcome(empty)
        self.mode = propagate
        request = wire.StartRequest(
            engine=self.node.engine.uuid,
            epoch=self.epoch,
            propagate=propagate,
            look=latest_look(self.node.engine) - 1 if look is None else look,
            anew=anew,
        )
        answer = self.node.tasks.start(self.who, self.uuid, task, request)
        if answer.epoch is not None:
            self.epoch = answer.epoch
        return task

    def plan(self, task: str, entries: Iterable[wire.PlanEntry]) -> list[wire.PlanDecision]:
        page = wire.PlanPage(entries=list(entries))
        return self.node.tasks.plan(self.who, self.uuid, task, self.epoch, page).decisions

    def deleted(self, task: str, paths: Iterable[str]) -> None:
        page = wire.DeletedPage(paths=list(paths))
        self.node.tasks.deleted(self.who, self.uuid, task, self.epoch, page)

    def batch(self, task: str, files: Mapping[str, bytes]) -> list[wire.BatchResult]:
        body = batch_of(files)
        return self.node.tasks.batch(self.who, self.uuid, task, self.epoch, body).results

    def upload(
        self, task: str | None, path: str, content: bytes, *, chunk: int = 1 << 20, **more: str
    ) -> str:
        metadata = {"path": path, **({"task": task} if task else {}), **more}
        view = self.node.uploads.create(self.who, self.uuid, len(content), metadata)
        return self.send(view.id, content, chunk=chunk)

    def send(self, upload: str, content: bytes, *, chunk: int = 1 << 20, offset: int = 0) -> str:
        while offset < len(content):
            block = content[offset : offset + chunk]
            view = self.node.uploads.patch(self.who, upload, offset, block, at_once=True)
            offset = view.offset
        return upload

    def end(
        self,
        task: str,
        files: Mapping[str, bytes],
        deleted: Iterable[str] = (),
        *,
        looks: Mapping[str, tuple[int, int]] | None = None,
        last_looks: Iterable[int] = (),
        copies: Mapping[str, int] | None = None,
    ) -> None:
        """End a task; `looks` are (first, first closed) of its files.

        `copies` are those that were sent from a link and are gone, with their last looks.
        """
        request = wire.EndRequest(
            manifest=[
                msgspec.structs.replace(
                    manifest_entry(path, content),
                    first_look=first,
                    closed_look=closed,
                    last_look=(copies or {}).get(path, 0),
                )
                for path, content in files.items()
                for first, closed in [(looks or {}).get(path, (0, 0))]
            ],
            deleted=list(deleted),
            last_looks=list(last_looks),
        )
        self.node.tasks.end(self.who, self.uuid, task, self.epoch, request)

    def outcome(self, task: str, wait: float = 60.0) -> dict[str, wire.Outcome]:
        answer = self.node.tasks.answer(self.who, self.uuid, task, wait)
        assert answer.state is wire.TaskState.DONE, answer
        self.last_task = wire.TaskMark(task=task, commit=answer.commit)
        self.newest = max(self.newest, answer.commit)
        return {each.path: each for each in answer.outcomes}

    def round(
        self,
        files: Mapping[str, bytes],
        deleted: Iterable[str] = (),
        *,
        propagate: wire.Propagate = wire.Propagate.REPLACED,
        resources: Mapping[str, bytes] | None = None,
        replaces: Iterable[str] = (),
        uploads: bool = False,
        task: str | None = None,
    ) -> dict[str, wire.Outcome]:
        """A whole task: plan, deletions, the bytes, the end, the outcome."""
        resources, deleted, replaces = resources or {}, list(deleted), set(replaces)
        task = self.start(task, propagate)
        entries = [
            plan_entry(
                path,
                content,
                replaces=path in replaces,
                resource=resource_entry(resources[path]) if path in resources else None,
            )
            for path, content in files.items()
        ]
        decisions = {each.path: each for each in self.plan(task, entries)}
        if deleted:
            self.deleted(task, deleted)
        goes: dict[str, bytes] = {}
        for path, content in files.items():
            decision = decisions[path]
            if decision.action is wire.Action.RESUME:
                assert decision.upload is not None
                self.send(decision.upload, content, offset=decision.offset)
            elif decision.action is wire.Action.SEND:
                goes[path] = content
            if decision.resource:
                goes[f"{path}.resource"] = resources[path]
        if uploads:
            for path, content in goes.items():
                self.upload(task, path, content)
        elif goes:
            problems = [each for each in self.batch(task, goes) if each.problem]
            assert not problems, problems
        refused = (wire.Action.CONFLICT, wire.Action.REFUSED)
        manifest = {
            path: content
            for path, content in files.items()
            if decisions[path].action not in refused
        }
        self.end(task, manifest, deleted)
        return self.outcome(task)


def epoch_of(node: Node, sender: str = A) -> str | None:
    """The epoch that a sender was given last, as one that goes on has it."""
    with node.engine.reading() as state:
        return state.senders[sender].epoch


def results(outcome: Mapping[str, wire.Outcome]) -> dict[str, str]:
    return {path: str(each.result) for path, each in outcome.items()}
