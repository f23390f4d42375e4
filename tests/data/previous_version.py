"""Makes `previous_version.tar.gz`: the directories of a receiver before there was a schema.

    git archive 8873435 | tar -x -C <old>; cp <this file> <old>; cd <old>
    PYTHONPATH=. python -P previous_version.py <target>
    tar -czf previous_version.tar.gz -C <target> .

Two senders; files of versions 3 and 4, aligned ones and of the table model among them; two files
that disagree about the type of root.sg.d1.s1; one file that is deleted, one retired, one bad.
"""

from __future__ import annotations

import sys
from pathlib import Path

from common import wire
from receiver.metadata.model import records
from tests.support.node_world import OPERATOR, B, Edge, World, path_of, tsfile
from tests.support.tsfile_bytes import build


def main(target: Path) -> None:
    with World(target).node() as node:
        a, b = Edge(node), Edge(node, B)
        a.check()
        b.check()
        second = {"root.sg.d2": {"s1": [(5, 1.5), (9, 2.5)], "s2": [(5, "x")]}}
        a.round({path_of(1): tsfile("root.sg.d1"), path_of(2): build(second, version=3)})
        third = {"root.sg.d3": {"s1": [(1, True)], "s2": [(2, 7)]}}
        a.round({path_of(3): build(third, aligned=["root.sg.d3"])})
        a.round({path_of(4): build({"root.sg.d1": {"s1": [(100, 0.5)]}})})
        table = build({("sensors", "west", "7"): {"temperature": [(3, 20.5)]}})
        b.round({path_of(5, sg="plant"): table})
        names = ("gone", "retired", "bad")
        files = {path_of(at): tsfile(f"root.sg.{name}") for at, name in enumerate(names, 6)}
        a.round(files)
        a.round({}, [path_of(6)], propagate=wire.Propagate.ALL)
        a.round({}, [path_of(7)])
        (bad,) = (each for each in node.files(OPERATOR).files if each.path == path_of(8))
        node.engine.commit([records.FileQuarantined(bad.physical, "md5: found bad")])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
