"""A device of a file with others goes to another sender: its new owner's word is what is read."""

from __future__ import annotations

from pathlib import Path

from receiver.metadata.engine import Engine
from tests.support.centre import Centre
from tests.support.edge import Edge
from tests.support.oracle import rows_read
from tests.support.tsfile_bytes import build

_LATE = "unsequence"
"""Whatever comes there stands above what is in sequence, by the names that databases give."""


def put(edge: Edge, sg: str, number: int, devices: dict[str, dict[int, int]], kind: str) -> None:
    content = {f"{sg}.{name}": {"s1": sorted(each.items())} for name, each in devices.items()}
    edge.put(edge.path(number, sg, kind=kind), build(content))


def delete(edge: Edge, path: str, series: str, time: int) -> None:
    """What the edge's database writes beside a file."""
    record = f"DELETION,{series},{2**63 - 1},{time},{time}\n"
    with (edge.data / f"{path}.mods").open("a") as file:
        file.write(record)


def settled(*edges: Edge) -> None:
    for each in edges:
        report = each.round()
        assert (report.exit_code, report.conflicts) == (0, []), report.as_json()


def read(centre: Centre, sg: str, at: int | None = None) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {"d1": {}, "d2": {}}
    for row in rows_read(centre.root / "schema", at):
        if row["device"].startswith(f"{sg}."):
            points = found[row["device"].removeprefix(f"{sg}.")]
            assert row["time"] not in points, "given twice"
            points[row["time"]] = row["value_long"]
    return found


def newest(centre: Centre) -> int:
    engine = Engine.read_only(Path(centre.root) / "schema")
    try:
        return engine.newest_commit
    finally:
        engine.close()


def test_what_the_new_owner_of_a_device_lists_stands_above_and_the_rest_stays(shared, make_edge):
    old, new = make_edge(shared.url), make_edge(shared.url)
    sg = old.sg
    put(old, sg, 9, {"d1": {1: 1, 2: 2, 3: 3}, "d2": {1: 1, 2: 2}}, _LATE)
    settled(old, new)
    shared.call("owners", "transfer", f"{sg}.d1", new.uuid)
    put(new, sg, 1, {"d1": {2: 20, 3: 30}}, "sequence")
    put(old, sg, 10, {"d2": {2: 22}}, _LATE)
    settled(old, new)
    first = {"d1": {1: 1, 2: 20, 3: 30}, "d2": {1: 1, 2: 22}}
    assert read(shared, sg) == first
    at = newest(shared)

    # What is deleted at either end is deleted of its own files.
    delete(old, old.path(9, sg, kind=_LATE), f"{sg}.d1.s1", 3)
    delete(new, new.path(1, sg), f"{sg}.d1.s1", 2)
    settled(old, new)
    assert read(shared, sg)["d1"] == {1: 1, 2: 2, 3: 30}
    put(new, sg, 2, {"d1": {2: 200, 4: 40}}, "sequence")
    settled(old, new)
    assert read(shared, sg)["d1"] == {1: 1, 2: 200, 3: 30, 4: 40}
    assert read(shared, sg, at) == first, "as it was"


def test_what_ended_with_its_only_device_is_listed_again_when_that_comes_back(shared, make_edge):
    old, new = make_edge(shared.url), make_edge(shared.url)
    sg = old.sg
    put(old, sg, 1, {"d1": {1: 1}}, "sequence")
    put(old, sg, 2, {"d1": {2: 2}}, "sequence")
    put(old, sg, 3, {"d2": {1: 1}}, "sequence")
    settled(old, new)
    shared.call("owners", "transfer", f"{sg}.d1", new.uuid)
    settled(old)  # it has heard of it
    put(new, sg, 20, {"d1": {1: 10, 2: 20}}, _LATE)
    settled(new)
    old.remove(old.path(2, sg))
    settled(old)
    shared.call("owners", "transfer", f"{sg}.d1", old.uuid)
    assert read(shared, sg)["d1"] == {1: 10, 2: 20}
    assert {each.file for each in old.round().wanted} == {old.path(n, sg) for n in (1, 2)}
    assert read(shared, sg)["d1"] == {1: 1, 2: 20}, "what it has no more does not stand above"
    settled(old)  # all was compared, so the end waited
    assert read(shared, sg)["d1"] == {1: 1, 2: 20}


def test_what_waited_for_a_device_stands_in_its_others_as_it_did(shared, make_edge):
    old, new = make_edge(shared.url), make_edge(shared.url)
    sg = old.sg
    put(old, sg, 1, {"d1": {5: 5}}, _LATE)
    settled(old)
    put(new, sg, 1, {"d1": {5: 50}, "d2": {1: 9}}, "sequence")
    put(new, sg, 2, {"d2": {1: 10}}, _LATE)
    assert len(new.round().conflicts) == 1
    new.remove(new.path(2, sg, kind=_LATE))
    new.round()
    assert read(shared, sg) == {"d1": {5: 5}, "d2": {1: 10}}
    shared.call("owners", "transfer", f"{sg}.d1", new.uuid)
    settled(new)
    assert read(shared, sg) == {"d1": {5: 50}, "d2": {1: 10}}


def test_what_had_lost_all_its_devices_is_listed_again_when_one_comes_back(shared, make_edge):
    old, new = make_edge(shared.url), make_edge(shared.url)
    sg = old.sg
    put(old, sg, 1, {"d1": {1: 1}, "d2": {1: 1}}, "sequence")
    settled(old, new)
    shared.call("owners", "transfer", f"{sg}.*", new.uuid)
    settled(old)
    put(new, sg, 20, {"d1": {1: 10}, "d2": {1: 20}}, _LATE)
    settled(new)
    shared.call("owners", "transfer", f"{sg}.d1", old.uuid)
    old.round()
    settled(old)
    assert read(shared, sg) == {"d1": {1: 1}, "d2": {1: 20}}


def test_a_device_that_comes_back_is_read_as_its_first_owner_has_it(shared, make_edge):
    old, new = make_edge(shared.url), make_edge(shared.url)
    sg = old.sg
    put(old, sg, 1, {"d1": {1: 1, 2: 2}, "d2": {1: 1}}, "sequence")
    put(old, sg, 9, {"d1": {2: 22}, "d2": {2: 2}}, _LATE)
    settled(old, new)
    before = newest(shared)
    shared.call("owners", "transfer", f"{sg}.d1", new.uuid)
    put(new, sg, 20, {"d1": {1: 10, 2: 20, 3: 30}}, _LATE)
    settled(new, old)
    meanwhile = newest(shared)
    assert read(shared, sg)["d1"] == {1: 10, 2: 20, 3: 30}
    shared.call("owners", "transfer", f"{sg}.*", old.uuid)
    settled(old)
    assert read(shared, sg) == {"d1": {1: 1, 2: 22, 3: 30}, "d2": {1: 1, 2: 2}}
    assert read(shared, sg, meanwhile)["d1"] == {1: 10, 2: 20, 3: 30}
    assert read(shared, sg, before)["d1"] == {1: 1, 2: 22}
    put(old, sg, 10, {"d1": {3: 33}}, _LATE)
    settled(old)
    assert read(shared, sg)["d1"] == {1: 1, 2: 22, 3: 33}
