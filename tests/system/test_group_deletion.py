"""A storage group and its files are deleted at a centre, and its edge does not send them again."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from receiver.cli.commands import cli
from tests.support.centre import Centre
from tests.support.edge import Edge
from tests.support.web import until
from tests.system.sender.test_rounds import call


def refused(centre: Centre, statement: str) -> str:
    arguments = ["--config", str(centre.config), "sql", statement]
    done = CliRunner().invoke(cli, arguments)
    assert "error: " in done.output
    return done.output


def states(centre: Centre, state: str) -> set[str]:
    return {each["path"] for each in centre.call("files", "--state", state)["files"]}


def test_a_group_with_data_is_deleted_once_it_is_said_and_stays_deleted(
    centre: Centre, make_edge: Any
) -> None:
    edge: Edge = make_edge(centre.start())
    files = {edge.write(number) for number in range(3)}
    assert edge.round().sent == 3
    group = f"root.{edge.sg.split('.')[1]}"
    assert "holds 3 loaded files of" in refused(centre, f"delete storage group {group}")
    assert states(centre, "live") == files
    assert "3 loaded files" in centre.sql(f"delete storage group {group} with data")
    assert states(centre, "live") == set()
    assert states(centre, "deleted") == files
    for _ in range(2):
        report = edge.round()
        assert (report.exit_code, report.sent) == (0, 0)
    assert states(centre, "live") == set()
    physical = centre.call("files", "--state", "deleted")["files"][0]["physical"]
    centre.call("files", "undelete", physical)  # the bytes stand for the history
    assert len(states(centre, "retired")) == 1
    assert f"{edge.sg}.d1.s1" in centre.sql(f"show timeseries {group}.**")


@pytest.mark.parametrize("forgets", ["never", "before", "before and behind"])
@pytest.mark.parametrize("rounds", [0, 2])
@pytest.mark.parametrize("mode", ["replaced", "all"])
def test_what_is_called_back_while_its_edge_has_it_is_listed_again(
    centre: Centre, make_edge: Any, mode: str, rounds: int, forgets: str
) -> None:
    edge: Edge = make_edge(centre.start(), propagate_deletes=mode)
    files = {edge.write(number) for number in range(3)}
    assert edge.round().sent == 3
    centre.sql(f"delete storage group root.{edge.sg.split('.')[1]} with data")
    lists = "**/last_local_files.txt"
    for each in edge.root.glob(lists) if "before" in forgets else ():
        each.unlink()
    for _ in range(rounds):
        edge.round()
    if rounds and forgets == "never":
        said = call(edge.write_config(propagate_deletes=mode), "status").stdout
        assert "  loaded          0 files\n" in said
        assert "  let go there    3 files (" in said
    physicals = [each["physical"] for each in centre.call("files", "--state", "deleted")["files"]]
    centre.call("files", "undelete", *physicals)
    for each in edge.root.glob(lists) if "behind" in forgets else ():
        each.unlink()  # so all is compared for another reason
    for _ in range(2):  # or what came later would stand above it, whatever the database says
        report = edge.round()
    assert (report.exit_code, report.sent, report.expired) == (0, 0, [])
    assert states(centre, "live") == files
    said = call(edge.write_config(propagate_deletes=mode), "status").stdout
    assert "  loaded          3 files\n" in said
    assert "let go there" not in said
    edge.remove(sorted(files)[0])
    edge.round()
    gone = states(centre, "deleted" if mode == "all" else "retired")
    assert sorted(files)[0] in gone


def test_many_files_are_held_as_the_configuration_says(centre: Centre, make_edge: Any) -> None:
    limits = {"MAX_FRACTION": "0.5", "FROM_FILES": "2"}
    env = {f"TSFERRY_RECEIVER_DELETES__{key}": value for key, value in limits.items()}
    edge: Edge = make_edge(centre.start(env=env))
    for number in range(2):
        edge.write(number)
    assert edge.round().sent == 2
    group = f"root.{edge.sg.split('.')[1]}"
    said = refused(centre, f"delete storage group {group} with data")
    digest = said.rpartition("with data '")[2][:32]
    centre.sql(f"delete storage group {group} with data '{digest}'")
    assert states(centre, "live") == set()


ALL_AT_ONCE = {
    "TSFERRY_RECEIVER_METADATA__HISTORY": "0s",
    "TSFERRY_RECEIVER_LOAD__KEEP_DELETED": "0s",
}


def test_an_edge_that_was_silent_for_longer_than_the_history_brings_nothing_back(
    centre: Centre, make_edge: Any
) -> None:
    edge: Edge = make_edge(centre.start(env=ALL_AT_ONCE))
    for number in range(3):
        edge.write(number)
    assert edge.round().sent == 3
    centre.sql(f"delete storage group root.{edge.sg.split('.')[1]} with data")
    # The edge is not heard of meanwhile.
    until(lambda: states(centre, "deleted") == set() and not [*centre.data.rglob("*-*.tsfile")])
    centre.stop()
    centre.start(env=ALL_AT_ONCE)
    report = edge.round()
    assert (report.exit_code, report.sent) == (0, 0)
    assert states(centre, "live") == set()
    edge.write(3)
    assert edge.round().sent == 1
    assert edge.round().exit_code == 0


def test_an_edge_that_heard_of_it_and_compares_its_whole_list_later_brings_nothing_back(
    centre: Centre, make_edge: Any
) -> None:
    edge: Edge = make_edge(centre.start(env=ALL_AT_ONCE))
    other: Edge = make_edge(f"http://127.0.0.1:{centre.port}")
    other.round()
    deleted = [edge.write(number, sg="root.gone") for number in range(2)]
    stays = edge.write(5, sg="root.stays")
    assert edge.round().sent == 3
    centre.sql("delete storage group root.gone with data")
    assert edge.round().sent == 0
    until(lambda: states(centre, "deleted") == set())
    for uuid in (other.uuid, edge.uuid):
        centre.call("owners", "transfer", "root.stays.d1", uuid)
    for _ in range(2):  # what came back is compared with all that is listed
        report = edge.round()
        assert (report.exit_code, report.sent) == (0, 0)
    assert states(centre, "live") == {stays}
    edge.remove(deleted[0])
    assert edge.round().exit_code == 0
    edge.write(0, sg="root.gone")  # it was told as gone, and comes with a copy of the disk, say
    report = edge.round()
    assert (report.exit_code, report.sent) == (0, 0)
    assert [each.file for each in report.expired] == [deleted[0]]
    assert states(centre, "live") == {stays}
    assert call(edge.write_config(), "quarantine", "retry", deleted[0]).returncode == 0
    assert edge.round().sent == 1
    assert edge.round().exit_code == 0
    assert states(centre, "live") == {stays, deleted[0]}


@pytest.mark.parametrize("kept", [True, False])
def test_an_edge_that_lost_all_it_knew_brings_back_nothing_that_was_deleted(
    centre: Centre, make_edge: Any, kept: bool
) -> None:
    """It lists nothing any more, so each file is new to it, with deletions in it or without."""
    edge: Edge = make_edge(centre.start(env={} if kept else ALL_AT_ONCE))
    deleted = {edge.write(number, sg="root.gone") for number in range(3)}
    stays = edge.write(5, sg="root.stays")
    assert edge.round().sent == 4
    centre.sql("delete storage group root.gone with data")
    if not kept:
        until(lambda: states(centre, "deleted") == set())
    mods = f"DELETION,root.gone.d1.s1,{2**63 - 1},0,1\n"
    (edge.data / f"{edge.path(0, sg='root.gone')}.mods").write_text(mods)
    for state in ("local_files.state", "last_local_files.txt"):
        for each in edge.data.glob(f"sync-sender/*/{state}"):
            each.unlink()
    for state in ("looks.state", "troubles.json"):
        for each in edge.schema.glob(f"sync/*/{state}"):
            each.unlink()
    for _ in range(2):
        report = edge.round()
        assert (report.exit_code, report.sent) == (0, 0)
        assert {each.file for each in report.expired} == deleted
    assert states(centre, "live") == {stays}
    new = edge.write(7, sg="root.gone")
    assert edge.round().sent == 1
    assert call(edge.write_config(), "quarantine", "retry", "--all").returncode == 0
    assert (edge.round().sent, states(centre, "live")) == (0, {stays, new})
    assert call(edge.write_config(), "quarantine", "retry", "--deleted").returncode == 0
    assert edge.round().sent == 3
    assert states(centre, "live") == {stays, new, *deleted}
