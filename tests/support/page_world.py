"""A receiver with many edges, some in trouble, for whoever looks at its page."""

from __future__ import annotations

import contextlib
import hashlib
import random
from typing import TYPE_CHECKING

from common import wire
from receiver.metadata.model import records
from receiver.operator.asked_work.background_tasks import add_task
from receiver.operator.edges.tokens import make_token
from receiver.operator.views.background_views import TaskAddRequest
from tests.support.node_world import Edge, path_of, sender, tsfile
from tests.support.page_reader import HOSTILE

if TYPE_CHECKING:
    from receiver.node import Node
    from tests.support.node_world import Clock


def _uuid(number: int) -> str:
    return hashlib.md5(f"edge {number}".encode()).hexdigest()


HOLDER, CLAIMANT = _uuid(0), _uuid(1)
"""Two edges that claim a device; the first has it."""

__all__ = ["CLAIMANT", "DEVICE", "HOLDER", "NODE", "fill"]

NODE = "5" * 32
"""A storage node that was never heard."""

DEVICE = "root.north.turbine1"
_PLACES = ("north", "south", "harbour", "ridge", "valley", "dunes", "mill")
_HOURS = 20
_HOSTILE = 30
_SILENT = (12, 40)
"""Edges by their numbers: with a name that is no good, and such as are late."""


def fill(node: Node, clock: Clock, *, edges: int) -> None:
    """So many edges; the first ones have files, two are in conflict, one has a hostile name."""
    chance = random.Random(7)
    busy = [Edge(node, uuid=_uuid(number)) for number in range(len(_PLACES))]
    number = 0
    for _ in range(_HOURS):
        clock.now += 3600
        for at, (edge, place) in enumerate(zip(busy, _PLACES, strict=True)):
            if chance.random() < 0.3 + at * 0.05:
                continue
            number += 1
            points = chance.randrange(20, 400)
            device = f"root.{place}.turbine{1 + number % 3}"
            content = tsfile(device, first=int(clock.now) * 1000, points=points)
            edge.round(
                {path_of(number, sg=f"root.{place}", partition=2810 + number // 20): content}
            )
    busy[1].round({path_of(900, sg="root.north"): tsfile(DEVICE, first=1, points=9)})
    busy[2].round({}, [path_of(3, sg="root.harbour", partition=2810)])
    bad = b"no TsFile"
    view = node.uploads.create(sender(_uuid(3)), _uuid(3), len(bad), {"path": path_of(901)})
    with contextlib.suppress(Exception):
        node.uploads.patch(sender(_uuid(3)), view.id, 0, bad)
    node.engine.commit([_seen(n) for n in range(len(_PLACES), edges)])
    node.engine.commit(
        [
            records.SenderSeen(edge.uuid, _label(n), _directory(node, edge.uuid))
            for n, edge in enumerate(busy)
        ]
    )
    node.engine.commit(
        [
            records.NodeRegistered(
                uuid=uuid, kind="remote", name=name, host="rack", instance=1, addresses=()
            )
            for uuid, name in (
                (NODE, "http://store-1.centre.example.com:8765"),
                ("6" * 32, HOSTILE),
            )
        ]
    )
    make_token(node.engine, "sender", sender=_uuid(0), note="north", scope=["root.north.**"])
    make_token(node.engine, "reader", note=HOSTILE)
    add_task(node.engine, node.operator.work, TaskAddRequest(kind="merge", group="root.north"))
    for n in range(edges):
        beat = wire.Heartbeat(
            version="0.1.0" if n % 9 else "0.0.9",
            label=_label(n),
            pending_files=chance.choice((0, 0, 0, 2, 14)),
            pending_bytes=chance.choice((0, 4096, 5 << 20)),
            complete_until=(int(clock.now) - chance.randrange(60, 90_000)) * 1000,
            state=chance.choice(("waiting", "waiting", "in a round")),
        )
        uuid = _uuid(n)
        at = clock.now
        clock.now -= 3 * 86_400 if n in _SILENT else chance.randrange(0, 600)
        node.checks.heartbeat(sender(uuid), uuid, beat)
        clock.now = at


def _label(number: int) -> str:
    if number == _HOSTILE:
        return HOSTILE
    place = _PLACES[number % len(_PLACES)]
    return f"{place}-{1 + number // len(_PLACES):04}"


def _seen(number: int) -> records.SenderSeen:
    uuid = _uuid(number)
    return records.SenderSeen(uuid, _label(number), f"10.{number % 200}.0.7_{uuid}")


def _directory(node: Node, uuid: str) -> str:
    with node.engine.reading() as state:
        return state.senders[uuid].directory
