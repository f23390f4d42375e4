"""TTL from end to end: an edge, a centre, files that are too old, and what each says of them."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.support.centre import Centre
from tests.support.edge import Edge
from tests.support.procs import wait_until
from tests.system.sender.test_rounds import call

HOUR_MS = 3_600_000


@pytest.fixture
def running(centre: Centre) -> str:
    return centre.start(env={"TSFERRY_RECEIVER_METADATA__TTL_EVERY": "1s"})


def states(centre: Centre, state: str) -> set[str]:
    return {each["path"] for each in centre.call("files", "--state", state)["files"]}


def safe(edge: Edge) -> list[str]:
    done = call(edge.write_config(), "status", "--safe-to-delete")
    assert done.returncode == 0, done.stderr
    return sorted(line.removeprefix(f"{edge.data}/") for line in done.stdout.splitlines())


def test_files_expire_at_the_centre_and_are_not_taken_in_again(
    centre: Centre, running: str, make_edge: Any
) -> None:
    edge: Edge = make_edge(running)
    now = int(time.time() * 1000)
    old, young = edge.write(1, first=now - 5 * HOUR_MS), edge.write(2, first=now - HOUR_MS)
    assert edge.round().sent == 2
    assert safe(edge) == sorted([old, young])

    centre.sql(f"set ttl to {edge.sg} {2 * HOUR_MS}")
    wait_until(lambda: states(centre, "expired") == {old}, "expired")
    assert states(centre, "live") == {young}
    assert safe(edge) == [young]  # of the other the centre has nothing any more

    older = edge.write(3, first=now - 9 * HOUR_MS)
    report = edge.round()
    assert [each.file for each in report.expired] == [older]
    assert (report.sent, report.bytes, report.exit_code) == (0, 0, 0)
    assert edge.listed == sorted([old, young])
    assert edge.leftovers == []
    assert safe(edge) == [young]
    task = report.tasks[-1:]
    for _ in range(2):  # nor is it offered in each round
        report = edge.round()
        assert (report.tasks, [each.file for each in report.expired]) == ([], [older])
    assert task
    status = call(edge.write_config(), "status")
    assert f"{older}: expired" in status.stdout
    assert "pending         0 files" in status.stdout


def test_a_ttl_that_was_lifted_lets_the_operator_send_again(
    centre: Centre, running: str, make_edge: Any
) -> None:
    edge: Edge = make_edge(running)
    now = int(time.time() * 1000)
    edge.write(1, first=now)
    edge.round()
    centre.sql(f"set ttl to {edge.sg} {2 * HOUR_MS}")
    old = edge.write(2, first=now - 5 * HOUR_MS)
    assert [each.file for each in edge.round().expired] == [old]
    centre.sql(f"unset ttl to {edge.sg}")
    assert call(edge.write_config(), "quarantine", "retry", old).returncode == 0
    assert edge.round().sent == 1
    assert old in states(centre, "live")


def test_a_centre_whose_clock_was_never_in_doubt_has_nothing_to_resume(
    centre: Centre, running: str
) -> None:
    assert centre.call("ttl", "resume") == {"was_suspended": None}
    assert centre.call("status")["clock"]["doubt"] is None
