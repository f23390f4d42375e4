"""Files leave the master's disks for nodes that have just proved to have them, and come back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from common import crash
from common.durable import Tree
from common.errors import UnreachableError
from receiver.load.upkeep.fsck import examine
from receiver.metadata.model import records
from receiver.metadata.state.placed_files import holding_nodes
from receiver.metadata.state.tables.sender_tables.released import ReleasedRow
from receiver.placement.assigning.replica_condition import ReplicaCondition
from receiver.placement.node_place import _differs
from receiver.tablet_copies.copies_wire import ProofAsked
from tests.support.copy_nodes import Machine
from tests.support.releasing_centre import ReleasingCentre
from tests.support.spark_world import World


@pytest.fixture
def centre(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ReleasingCentre]:
    centre = ReleasingCentre(tmp_path, monkeypatch)
    yield centre
    centre.close()


@pytest.fixture
def pair(centre: ReleasingCentre) -> tuple[Machine, Machine]:
    return centre.add(), centre.add()


@pytest.fixture
def physical(centre: ReleasingCentre, pair: tuple[Machine, Machine]) -> str:
    physical = centre.load()
    centre.settle()
    return physical


def test_what_two_nodes_have_proved_leaves_the_disk_and_comes_back(
    centre: ReleasingCentre, pair: tuple[Machine, Machine], physical: str
) -> None:
    assert centre.evict() == 1
    assert not centre.is_here(physical)
    assert centre.said(physical) == tuple(sorted(each.uuid for each in pair))
    assert sorted(centre.asked) == [("host1", physical), ("host2", physical)]
    assert centre.fetched(physical) == centre.contents[physical]
    commit = centre.engine.newest_commit
    assert centre.evict() == 1  # proved once more, and said already
    assert (len(centre.asked), centre.engine.newest_commit) == (4, commit)


def test_what_is_said_lasts_over_a_restart_and_a_checkpoint(
    centre: ReleasingCentre, physical: str
) -> None:
    centre.evict()
    said = centre.said(physical)
    centre.engine.checkpoint()
    centre.engine.close()
    centre.world = World.reopened(centre.root / "centre")
    assert said
    assert centre.said(physical) == said
    with centre.engine.reading() as state:
        (tablet,) = state.released_table.tablets()
        assert state.released_table.copies(tablet) == 2


@pytest.mark.parametrize(
    "why", ["down", "silent", "hurt", "draining", "one host", "behind", "not heard yet"]
)
def test_a_file_stays_unless_all_nodes_of_its_tablet_are_known_to_have_it(
    centre: ReleasingCentre, pair: tuple[Machine, Machine], physical: str, why: str
) -> None:
    node = pair[1]
    if why == "down":
        node.stop()
    node.is_silent = why == "silent"
    node.is_hurt = why == "hurt"
    if why == "draining":
        centre.draining.add(node.uuid)
    if why == "one host":
        node.host = pair[0].host
    if why == "behind":
        physical = centre.load()
        centre.pull(pair[0])
    if why == "not heard yet":
        centre.live()  # the master was started anew
        centre.report()
    assert centre.evict() == (1 if why == "behind" else 0)
    assert centre.is_here(physical)
    assert centre.said(physical) is None


def test_a_node_whose_bytes_have_rotted_is_found_out(
    centre: ReleasingCentre, pair: tuple[Machine, Machine], physical: str
) -> None:
    centre.damage(pair[1], physical)
    assert centre.evict() == 0
    assert centre.is_here(physical)
    assert centre.said(physical) is None
    assert centre.evictor.doubtful == 1


@pytest.mark.parametrize("alike", [False, True])
def test_what_has_rotted_here_is_no_measure_for_nodes(
    centre: ReleasingCentre, pair: tuple[Machine, Machine], physical: str, alike: bool
) -> None:
    """Nor are bytes that all of them have, and that are not those of the file."""
    rotten = centre.contents[physical][:-1] + b"?"
    (centre.world.data / physical).write_bytes(rotten)
    for node in pair if alike else ():
        (found,) = node.paths[0].glob(f"tablets/*/{physical}")
        found.write_bytes(rotten)
    assert centre.evict() == 0
    assert centre.is_here(physical)
    assert centre.said(physical) is None


def test_a_node_that_answers_with_a_proof_of_before_is_found_out(
    centre: ReleasingCentre, physical: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: dict[str, str] = {}
    real = centre.proof

    def proof(node, asked):  # type: ignore[no-untyped-def]
        return answers.setdefault(node.uuid, real(node, asked))

    monkeypatch.setattr(centre, "proof", proof)
    assert centre.evict() == 1
    centre.fetched(physical)
    assert centre.evict() == 0
    assert centre.is_here(physical)


def test_another_start_of_a_node_has_proved_nothing(
    centre: ReleasingCentre, pair: tuple[Machine, Machine], physical: str
) -> None:
    centre.between = lambda _: pair[1].restart() if pair[1].instance == 1 else None
    assert centre.evict() == 0
    assert centre.is_here(physical)
    assert centre.said(physical) is None


def test_a_replica_of_another_generation_has_proved_nothing(
    centre: ReleasingCentre, pair: tuple[Machine, Machine], physical: str
) -> None:
    def made_anew(asked: ProofAsked) -> None:
        order = centre.order(asked.tablet, generation=2)
        pair[1].store.make([order], centre.mark())

    centre.between = made_anew
    assert centre.evict() == 0
    assert centre.is_here(physical)
    assert centre.said(physical) is None


@pytest.mark.parametrize(
    "what",
    ["started anew", "started anew, and heard", "placed anew", "deleted", "falls silent"],
)
def test_what_changes_between_the_proof_and_the_moment_in_which_it_goes_keeps_it(
    centre: ReleasingCentre, pair: tuple[Machine, Machine], physical: str, what: str
) -> None:
    third = centre.add()

    def hook(name: str) -> None:
        if name != "copies.released":
            return
        if what.startswith("started anew"):
            pair[1].restart()
            if what.endswith("heard"):
                centre.settle()
        elif what == "falls silent":
            pair[1].is_silent = True
        elif what == "deleted":
            centre.engine.commit([records.FileDeleted(physical, "operator")])
        else:
            nodes = (pair[0].uuid, third.uuid)
            placed = records.TabletPlaced(centre.tablets()[0], 2, nodes, pair[0].uuid)
            centre.engine.commit([placed])

    with crash.arm(hook):
        assert centre.evict() == 0
    assert centre.is_here(physical)


@pytest.mark.parametrize(
    "point",
    ["copies.release_proved", "copies.released", "storage.evict.before", "storage.evicted"],
)
def test_a_death_at_any_step_leaves_the_file_readable(
    centre: ReleasingCentre, physical: str, point: str
) -> None:
    def hook(name: str) -> None:
        if name == point:
            raise crash.SimulatedCrash(name)

    with crash.arm(hook), pytest.raises(crash.SimulatedCrash):
        centre.evict()
    centre.live()
    centre.settle()
    assert centre.is_here(physical) or centre.said(physical)
    assert sorted(centre.whole_at(physical)) == ["host1", "host2"]
    assert centre.fetched(physical) == centre.contents[physical]


def test_a_lost_node_is_made_up_for_by_the_other_one(
    centre: ReleasingCentre, pair: tuple[Machine, Machine], physical: str
) -> None:
    centre.evict()
    third = centre.add()
    pair[0].stop()
    centre.lost.add(pair[0].uuid)
    centre.settle()
    assert third.pulled == [("http://host2", physical)]
    assert centre.has(physical) == sorted([pair[1].uuid, third.uuid])
    assert not centre.is_here(physical)


def test_nodes_that_are_emptied_all_at_once_keep_it_until_others_have_it(
    centre: ReleasingCentre, pair: tuple[Machine, Machine], physical: str
) -> None:
    centre.evict()
    others = centre.add(), centre.add()
    centre.draining |= {each.uuid for each in pair}
    centre.assignment.run_once()  # placed at the others, who have nothing yet
    assert set(centre.placed()) == {each.uuid for each in others}
    for _ in range(3):  # they report that they are there, and pull nothing yet
        centre.report()
        centre.now += 6.0
        centre.assignment.run_once()
    assert sorted(centre.whole_at(physical)) == ["host1", "host2"]
    assert centre.fetched(physical) == centre.contents[physical]
    (centre.world.data / physical).unlink()
    centre.settle(6)
    assert sorted(centre.whole_at(physical)) == ["host3", "host4"]
    assert "master" not in {where for each in others for where, _ in each.pulled}


def test_a_source_that_lacks_it_is_no_end_of_the_search(
    centre: ReleasingCentre, pair: tuple[Machine, Machine], physical: str
) -> None:
    centre.evict()
    third = centre.add()
    pair[0].stop()
    centre.lost.add(pair[0].uuid)
    centre.assignment.run_once()
    centre.lost.discard(pair[0].uuid)  # it is there after all, and the other one is not
    pair[0].start()
    pair[1].stop()
    centre.settle()
    assert physical in third.names()


@pytest.mark.parametrize("evict_copies", [2, 0])
def test_fewer_wanted_copies_take_none_of_what_is_only_at_nodes(
    centre: ReleasingCentre, physical: str, evict_copies: int
) -> None:
    kept = centre.load(partition=7)
    centre.settle()
    (centre.world.data / kept).rename(centre.root / "aside")
    assert centre.evict() == 1
    (centre.root / "aside").rename(centre.world.data / kept)
    centre.rules = centre.rules._replace(copies=1, evict_copies=evict_copies)
    centre.live()
    centre.settle(6)
    assert sorted(centre.whole_at(physical)) == ["host1", "host2"]
    assert len(centre.placed(_tablet(centre, physical))) == 2


def _tablet(centre: ReleasingCentre, physical: str) -> str:
    with centre.engine.reading() as state:
        return state.released_table.rows[physical].tablet


@pytest.mark.parametrize("how", ["superseded", "deleted", "bad"])
def test_what_readers_see_no_more_moves_along_while_its_row_is_there(
    centre: ReleasingCentre, pair: tuple[Machine, Machine], physical: str, how: str
) -> None:
    centre.evict()
    above = centre.load()
    hiding: dict[str, list[records.Op]] = {
        "bad": [records.FileQuarantined(physical, "bad")],
        "deleted": [records.FileDeleted(physical, "operator")],
        "superseded": [
            records.FileRetired(physical, 9),
            records.FileSuperseded(physical, [above]),
        ],
    }
    for op in hiding[how]:
        centre.engine.commit([op])
    third = centre.add()
    pair[0].stop()
    centre.lost.add(pair[0].uuid)
    centre.settle(6)
    assert physical in third.names()
    assert centre.whole_at(physical).count("host3") == 1
    if how == "deleted":
        centre.engine.commit([records.FileForgotten(physical)])
        centre.settle(6)
        assert centre.said(physical) is None
        assert physical not in third.names()


def test_a_dropped_table_takes_nothing_whose_row_is_there(
    centre: ReleasingCentre, physical: str
) -> None:
    centre.evict()
    (table,) = _tables(centre)
    centre.engine.commit([records.FileDeleted(physical, "operator"), records.TableDropped(table)])
    centre.settle(6)
    assert sorted(centre.whole_at(physical)) == ["host1", "host2"]
    assert centre.fetched(physical) == centre.contents[physical]  # undeleted, or of the past
    centre.engine.commit([records.FileForgotten(physical)])
    centre.settle(6)
    assert centre.whole_at(physical) == []


def _tables(centre: ReleasingCentre) -> list[str]:
    with centre.engine.reading() as state:
        return [each.id for each in state.loaded_tables.there()]


def test_what_all_nodes_have_lost_is_told_and_found(
    centre: ReleasingCentre, pair: tuple[Machine, Machine], physical: str
) -> None:
    centre.evict()
    assert centre.released.all()[0] == 1
    assert centre.released.nowhere()[0] == 0
    assert centre.released.alone_at(pair[0].uuid)[0] == 0
    pair[1].stop()
    assert centre.released.alone_at(pair[0].uuid) == (
        1,
        len(centre.contents[physical]),
        (physical,),
    )
    pair[0].stop()
    assert centre.released.nowhere()[:1] == (1,)
    with pytest.raises(UnreachableError, match="no storage node gives"):
        centre.fetched(physical)
    assert _fsck(centre) == (1, [])
    centre.engine.commit([records.NodeLost(each.uuid) for each in pair])
    remote, found = _fsck(centre)
    assert (remote, found) == (0, [("missing", physical)])


def test_what_a_stand_by_has_on_no_disk_is_told_to_be_at_a_node_alone(
    centre: ReleasingCentre, pair: tuple[Machine, Machine], physical: str
) -> None:
    """No commit has let it go: its disk was lost with the machine of the master."""
    (centre.world.data / physical).unlink()
    assert centre.released.all()[0] == 0
    assert centre.released.alone_at(pair[0].uuid)[0] == 0
    pair[1].stop()
    size = len(centre.contents[physical])
    assert centre.released.alone_at(pair[0].uuid) == (1, size, (physical,))
    assert centre.released.nowhere()[0] == 0
    pair[0].stop()  # and now nobody is known to have it
    assert centre.released.nowhere() == (1, size, (physical,))
    assert sum(centre.released.looks_for_nowhere()) == 1
    centre.engine.commit([records.FileUploaded(physical, 1, size, "etag=0")])
    assert centre.released.alone_at(pair[0].uuid)[0] == 0  # the object store has it
    assert centre.released.nowhere()[0] == sum(centre.released.looks_for_nowhere()) == 0


def _fsck(centre: ReleasingCentre) -> tuple[int, list[tuple[str, str]]]:
    assert centre.tree is not None
    with Tree(centre.root / "centre" / "schema") as schema:
        report = examine(centre.engine, [centre.tree], schema)
    return report.remote, [
        (each.kind, each.path) for each in report.found if each.kind == "missing"
    ]


def test_who_has_proved_it_is_counted_though_nobody_heard_it_in_this_life(
    centre: ReleasingCentre, pair: tuple[Machine, Machine], physical: str
) -> None:
    centre.evict()
    others = centre.add(), centre.add()
    for each in pair:
        each.stop()
        centre.lost.add(each.uuid)
    centre.settle(3)
    assert set(centre.placed()) == {each.uuid for each in others}  # they have nothing of it
    centre.reports.clear()
    centre.live()
    for each in pair:  # perhaps it is at either; that both are dead is for people to say
        assert centre.released.alone_at(each.uuid)[0] == 1
    assert centre.released.alone_at(others[0].uuid)[0] == 1


def test_what_may_be_at_nodes_only_is_safe_at_two_whatever_is_wanted(
    centre: ReleasingCentre, pair: tuple[Machine, Machine], physical: str
) -> None:
    condition = ReplicaCondition(centre.book, centre.views, 0, safe=1)
    for released in (False, True):
        with centre.engine.reading() as state:
            assert condition.is_safe(state, centre.row(physical))
        pair[1].stop()
        with centre.engine.reading() as state:
            assert condition.is_safe(state, centre.row(physical)) is not released
        pair[1].start()
        centre.settle()
        centre.evict()


def test_nodes_that_report_its_tablet_are_asked_wherever_it_is_placed(
    centre: ReleasingCentre, pair: tuple[Machine, Machine], physical: str
) -> None:
    """As a master does whose state is older than the release."""
    others = centre.add(), centre.add()
    centre.draining |= {each.uuid for each in pair}
    centre.assignment.run_once()
    centre.report()
    assert set(centre.placed()) == {each.uuid for each in others}
    (centre.world.data / physical).unlink()
    urls = {each.url for each in centre.places.of_file(physical, perhaps=True)}
    assert {"http://host1", "http://host2"} <= urls


def test_a_replica_that_could_not_be_removed_whole_has_nothing(
    centre: ReleasingCentre,
    pair: tuple[Machine, Machine],
    physical: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replica = pair[0].store.replica(_any_tablet(centre))
    assert replica.commit
    assert physical in replica.files()

    def broken(tree: Tree, rel: str, **more: object) -> None:
        raise OSError(5, "Input/output error", rel)

    with monkeypatch.context() as patch:
        patch.setattr(Tree, "unlink", broken)
        with pytest.raises(OSError, match="Input/output"):
            replica.drop(replica.generation)
    assert replica.commit == 0
    assert physical not in replica.files()
    assert replica.drop(replica.generation)


def _any_tablet(centre: ReleasingCentre) -> str:
    with centre.engine.reading() as state:
        return next(iter(state.tablet_table.rows))


def test_a_proof_for_another_tablet_is_said_anew() -> None:
    nodes = [SimpleNamespace(uuid=each) for each in ("a", "b")]
    held: Any = SimpleNamespace(nodes=nodes, placement=SimpleNamespace(tablet="new", generation=1))
    said = ReleasedRow(
        physical="p", tablet="new", generation=1, nodes=("b", "a"), created=1, changed=1
    )
    assert not _differs(held, said)
    assert _differs(held, msgspec.structs.replace(said, tablet="old"))
    assert _differs(held, msgspec.structs.replace(said, generation=2))
    assert _differs(held, None)


def test_who_was_forgotten_is_no_reason_to_miss_what_was_made_elsewhere(
    centre: ReleasingCentre, pair: tuple[Machine, Machine], physical: str
) -> None:
    centre.evict()
    with centre.engine.reading() as state:
        assert holding_nodes(state, physical, proved=True) == list(centre.said(physical) or ())
    centre.engine.commit([records.NodeLost(each.uuid) for each in pair])
    with centre.engine.reading() as state:
        assert holding_nodes(state, physical, proved=True) == []
        rows = {key: row for key, row in state.node_table.rows.items() if key != pair[0].uuid}
        others = msgspec.structs.replace(state.node_table.rows[pair[0].uuid], lost=False)
        aside = SimpleNamespace(
            released_table=state.released_table,
            node_table=SimpleNamespace(rows=rows | {"c": others}),
            placement_table=SimpleNamespace(
                rows={_tablet(centre, physical): SimpleNamespace(nodes=("c",))}
            ),
            loaded_tables=state.loaded_tables,
            tablet_table=state.tablet_table,
        )
        state_of_later: Any = aside
        assert holding_nodes(state_of_later, physical, proved=True) == ["c"]
