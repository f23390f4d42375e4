"""Makes `before_rooms.tar.gz`: the directories of a receiver and of a sender of the version before.

    git archive 485982c | tar -x -C <old>; cp <this file> <old>; cd <old>
    PYTHONPATH=. python -P before_rooms.py <target>
    tar --format=pax -czf before_rooms.tar.gz -C <target> receiver sender

The receiver: a checkpoint with commits behind it, series with tags, an alias and a TTL, a key, an
owner, files that are loaded, retired and in quarantine. The sender: two loaded files, one in
trouble, and a task that was cut off before its end, of which one file is here no more.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

from common import crash, wire
from common.crash import SimulatedCrash
from common.wire import Action
from receiver.metadata import records
from tests.support.edge import Edge as Site
from tests.support.node_world import OPERATOR, Edge, World, path_of, tsfile
from tests.support.scripted_receiver import ScriptedReceiver

STATEMENTS = (
    "set storage group to root.sg",
    "create timeseries root.sg.made.s1(speed) with datatype=DOUBLE, encoding=GORILLA "
    "tags(unit=c, place=hall) attributes(note=old)",
    "create timeseries root.sg.made.s2 with datatype=INT64",
    "set ttl to root.sg 3600000",
)


def receiver(target: Path) -> None:
    with World(target).node() as node:
        for statement in STATEMENTS:
            node.engine.execute(statement)
        edge = Edge(node)
        edge.check()
        edge.round({path_of(1): tsfile("root.other.d1"), path_of(2): tsfile("root.other.d2")})
        node.engine.kv().save("a key", "its value")
        node.engine.checkpoint()
        edge.round({path_of(3): tsfile("root.other.d3")})
        edge.round({}, [path_of(2)])
        (bad,) = (each for each in node.files(OPERATOR).files if each.path == path_of(3))
        node.engine.commit([records.FileQuarantined(bad.physical, "md5: found bad")])
        node.engine.execute("alter timeseries root.sg.made.s2 add tags unit=f")


def sender(target: Path) -> None:
    with ScriptedReceiver() as running:
        edge = Site(target, running.url)
        bad, *_ = (edge.write(number) for number in (1, 2, 3))
        refused = wire.PlanDecision(path=bad, action=Action.REFUSED, reason="no", hold=True)
        running.decide = lambda entry: refused if entry.path == bad else None
        edge.round()
        gone = edge.write(4)
        edge.write(5)

        def hook(point: str) -> None:
            if point == "synclogs.files":
                raise SimulatedCrash(point)

        with contextlib.suppress(SimulatedCrash), crash.arm(hook):
            edge.round()
        edge.remove(gone)


if __name__ == "__main__":
    receiver(Path(sys.argv[1]) / "receiver")
    sender(Path(sys.argv[1]) / "sender")
