"""Rounds of one sender against a dictionary: path -> content, as the centre must show it."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from common import wire
from receiver.node import Node
from receiver.operator.stored.files import list_files
from tests.support import tiers
from tests.support.node_world import A, Edge, World, fsck_of, path_of, results, tsfile

rounds = st.lists(
    st.tuples(
        st.dictionaries(st.integers(0, 5), st.integers(0, 2), max_size=4),  # file -> content
        st.sets(st.integers(0, 5), max_size=3),  # gone
        st.sampled_from([wire.Propagate.ALL, wire.Propagate.NEVER]),
        st.booleans(),  # a restart before it
    ),
    min_size=1,
    max_size=6,
)


def content(number: int, salt: int) -> bytes:
    return tsfile(f"root.sg.d{number % 2}", first=number * 100, salt=salt)


def check(world: World, node: Node, listed: dict[str, bytes], kept: list[bytes]) -> None:
    """What is on the sender's list, and beside it what is retired."""
    on_disk = world.loaded()
    rows = list_files(node.operator, sender=A, limit=1000).files
    live = {row.path: on_disk[row.physical] for row in rows if row.state == "live"}
    retired = sorted(on_disk[row.physical] for row in rows if row.state == "retired")
    assert live == listed
    assert retired == sorted(kept)
    assert fsck_of(node).found == []


@settings(
    max_examples=tiers.examples(40),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(plan=rounds)
def test_any_rounds_end_in_what_a_dictionary_says(
    tmp_path_factory: pytest.TempPathFactory,
    plan: list[tuple[dict[int, int], set[int], wire.Propagate, bool]],
) -> None:
    world = World(tmp_path_factory.mktemp("model"))
    listed: dict[str, bytes] = {}
    retired: dict[str, list[bytes]] = {}
    node = world.still_node()
    edge = Edge(node)
    for files, numbers_gone, propagate, restart in plan:
        if restart:
            node.close()
            node = world.still_node()
        edge.node = node
        new = {path_of(number): content(number, salt) for number, salt in files.items()}
        gone = [path_of(number) for number in numbers_gone if number not in files]
        # a retired file that comes back with the same content is there already, and live again
        back = {
            path
            for path, each in new.items()
            if each in retired.get(path, ()) and listed.get(path) != each
        }
        replaced = [path for path in new if path in listed and listed[path] != new[path]]
        outcome = results(
            edge.round(new, [*gone, *replaced], replaces=replaced, propagate=propagate)
        )
        for path in new:
            same = listed.get(path) == new[path] or path in back
            assert outcome[path] == ("already" if same else "loaded")
        ended = {path: listed[path] for path in (*gone, *replaced) if path in listed}
        listed = {path: each for path, each in (listed | new).items() if path not in gone}
        for path in back:
            retired[path].remove(new[path])
        for path, before in ended.items():
            if propagate is not wire.Propagate.ALL:
                retired.setdefault(path, []).append(before)
        check(world, node, listed, [each for kept in retired.values() for each in kept])
    node.close()
