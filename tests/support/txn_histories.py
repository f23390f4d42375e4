"""Histories of transactions over lists, and what is wrong with them (Elle's idea, VLDB 2020).

Each transaction reads lists and appends to them, every value once. So a list that was read tells in
which order its values were written, and by that which transaction depends on which:

    ww  the one wrote the value before that of the other
    wr  the other read what the one wrote
    rw  the one did not see yet what the other wrote next

Under snapshot isolation each cycle of these has two rw that follow each other (Fekete et al.,
2005); one that has none such is an anomaly. That a transaction sees all that was committed before
it began is a dependency too: the moments of begin and commit are nodes that follow each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise

__all__ = ["Done", "anomalies"]

Cell = Hashable


@dataclass
class Done:
    """A transaction as its client knows it.

    Attributes:
        began: when, in the count of all begins and ends.
        ended: the same.
        is_committed: False if it was rolled back.
        reads: (cell, values) as they were read before it appended anything there.
        appends: (cell, value) in the order in which it did.
        seen_own: (cell, values) as they were read behind appends of its own.
    """

    began: int
    ended: int = 0
    is_committed: bool = False
    reads: list[tuple[Cell, tuple[int, ...]]] = field(default_factory=list)
    appends: list[tuple[Cell, int]] = field(default_factory=list)
    seen_own: list[tuple[Cell, tuple[int, ...]]] = field(default_factory=list)


def anomalies(history: Iterable[Done]) -> list[str]:
    """What no history under strong snapshot isolation has; the last one should read all lists."""
    every = list(history)
    committed = [each for each in every if each.is_committed]
    said = []
    writer = {value: number for number, each in enumerate(committed) for _, value in each.appends}
    order = _orders(committed, said)
    for each in committed:
        for cell, values in each.reads + each.seen_own:
            own = [value for where, value in each.appends if where == cell]
            foreign = [value for value in values if value not in own]
            if any(value not in writer for value in foreign):
                said.append(f"aborted read: {cell} {values}")
            for value in foreign[-1:]:
                by = committed[writer[value]] if value in writer else each
                last = [written for where, written in by.appends if where == cell]
                if last and value != last[-1]:
                    said.append(f"intermediate read: {cell} {values}")
    for each in every:
        for cell, values in each.seen_own:
            own = tuple(value for where, value in each.appends if where == cell)
            if values and not set(values) & set(own):
                said.append(f"own writes are not read: {cell} {values}")
    if not said:
        said += _cycles(committed, writer, order)
    return said


def _orders(committed: list[Done], said: list[str]) -> dict[Cell, tuple[int, ...]]:
    """Of each cell the longest list that was read: all others begin it."""
    longest: dict[Cell, tuple[int, ...]] = {}
    reads = [read for each in committed for read in each.reads]
    for cell, values in reads:
        if len(values) > len(longest.get(cell, ())):
            longest[cell] = values
    for cell, values in reads:
        if longest.get(cell, ())[: len(values)] != values:
            said.append(f"lists that contradict each other: {cell} {values} {longest[cell]}")
    for each in committed:
        for cell, value in each.appends:
            if value not in longest.get(cell, ()):
                said.append(f"lost update: {value} of {cell}")
    return longest


def _cycles(
    committed: list[Done], writer: dict[int, int], order: dict[Cell, tuple[int, ...]]
) -> list[str]:
    dependencies: dict[Hashable, set[Hashable]] = defaultdict(set)
    overtaken: dict[Hashable, set[Hashable]] = defaultdict(set)
    for values in order.values():
        for before, after in pairwise(values):
            if writer[before] != writer[after]:
                dependencies[writer[before]].add(writer[after])
    for number, each in enumerate(committed):
        for cell, values in each.reads:
            if values and writer[values[-1]] != number:
                dependencies[writer[values[-1]]].add(number)
            following = order.get(cell, ())[len(values) :]
            if following and writer[following[0]] != number:
                overtaken[number].add(writer[following[0]])
        dependencies["time", each.began].add(number)
        dependencies[number].add(("time", each.ended))
    times = sorted({each.began for each in committed} | {each.ended for each in committed})
    for before, after in pairwise(times):
        dependencies["time", before].add(("time", after))
    left = _left_in_cycles(dependencies, overtaken)
    return [f"a cycle without two rw that follow each other, among {left}"] if left else []


def _left_in_cycles(
    dependencies: dict[Hashable, set[Hashable]], overtaken: dict[Hashable, set[Hashable]]
) -> list[Hashable]:
    """Nodes in or between cycles; a node is (which, whether it was reached by rw)."""
    arrows: dict[tuple[Hashable, bool], set[tuple[Hashable, bool]]] = defaultdict(set)
    for node in {*dependencies, *overtaken}:
        for by_rw in (False, True):
            arrows[node, by_rw] |= {(each, False) for each in dependencies.get(node, ())}
        arrows[node, False] |= {(each, True) for each in overtaken.get(node, ())}
    incoming: dict[tuple[Hashable, bool], int] = defaultdict(int)
    for targets in arrows.values():
        for target in targets:
            incoming[target] += 1
    free = [node for node in arrows if not incoming[node]]
    left = set(arrows) | set(incoming)
    while free:
        node = free.pop()
        left.discard(node)
        for target in arrows.get(node, ()):
            incoming[target] -= 1
            if not incoming[target]:
                free.append(target)
    return sorted({node for node, _ in left if isinstance(node, int)})
