"""Merges by processes of their own, beside a receiver: killed, paused, and by a cluster."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from receiver.metadata.state.work_rows import WorkRow
from receiver.node import Node
from receiver.operator.edges.tokens import make_token
from receiver.web.app import close, create_app, site_of
from tests.support.hurrying import hurry, hurrying
from tests.support.merging_node import compactions, given_by, small_files
from tests.support.node_world import World
from tests.support.procs import BOUND, Child, Children, children, wait_until
from tests.support.proving import Site
from tests.support.web import running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEASE, SHORT = 60.0, 1.2
"""Seconds; a busy machine lets nobody sleep through the first."""
COMMAND = Path(sys.executable).parent / "tsferry-receiver"


class Plant:
    """A receiver in this process with a partition that is due, and executors beside it."""

    def __init__(self, world: World, url: str, node: Node, site: Site, processes: Children) -> None:
        self.world, self.url, self.node, self.site = world, url, node, site
        self.processes = processes
        self.token = make_token(node.engine, role="worker").token
        self.came = threading.Event()
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        put = node.remote_work.put

        def slow(*args: object) -> None:
            put(*args)  # type: ignore[arg-type]
            self.came.set()
            assert self.may_go_on.wait(BOUND)

        node.remote_work.put = slow  # type: ignore[method-assign]

    def executor(self, *more: str) -> Child:
        return self.processes.start(
            [str(COMMAND), "work", "--from", self.url, "--kinds", "merge", "--every", "0.2", *more],
            env={"TSFERRY_WORKER_TOKEN": self.token},
            forked=True,
        )

    def rows(self) -> list[WorkRow]:
        with self.node.engine.reading() as state:
            return list(state.work_table.rows.values())

    def states(self) -> list[str]:
        return [str(each.state) for each in self.rows()]

    def until(self, worker: Child, condition: Callable[[], object], what: str) -> None:
        """Wait for what a worker brings about, who does not stand back meanwhile."""
        worker.until(lambda: hurry(worker.pid) or condition(), what)

    def code(self, worker: Child) -> int:
        """Its exit code, once it has ended."""
        wait_until(lambda: hurry(worker.pid) or not worker.running, "the end of a worker")
        return worker.wait()

    def is_merged(self) -> bool:
        """Whether readers are given what they were, by one merge; and nothing else lies about."""
        (row,) = compactions(self.node)
        there = [each for each in self.world.loaded() if "/merged-" in each]
        staged = list((self.world.data / "merging").iterdir())
        outputs = [each.physical for each in row.outputs]
        return given_by(self.node, row) == self.site.answer() and there == outputs and not staged


@pytest.fixture
def plant(tmp_path: Path) -> Iterator[Plant]:
    world = World(tmp_path / "centre", clock=time.time, merge={"here": False})
    with world.still_node() as node, children(tmp_path) as processes:
        node.work.lease = LEASE
        site = Site(node)
        small_files(site, 6)
        node.compactor.compact("root.sg")
        app = create_app(world.config, node)
        try:
            with running(app, gate=site_of(app).gate) as server:
                host, port = server.addresses[0]
                yield Plant(world, f"http://{host}:{port}", node, site, processes)
        finally:
            close(app)


@pytest.mark.slow
def test_an_executor_merges_what_the_receiver_itself_would(plant: Plant) -> None:
    worker = plant.executor("--once")
    assert plant.code(worker) == 0, worker.text()
    assert plant.states() == ["done"]
    assert plant.is_merged()


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize("end", ["killed", "paused"])
def test_who_ends_in_the_middle_of_sending_commits_nothing_and_leaves_nothing(
    plant: Plant, end: str
) -> None:
    plant.may_go_on.clear()
    plant.node.work.lease = SHORT
    lost = plant.executor()
    plant.until(lost, plant.came.is_set, "a block that came")
    lost.signal(signal.SIGKILL if end == "killed" else signal.SIGSTOP)
    plant.may_go_on.set()
    (before,) = plant.rows()
    wait_until(plant.node.work.expire, "the end of its lease")
    plant.node.work.lease = LEASE
    other = plant.executor()
    plant.until(other, lambda: plant.states() == ["done"], "a task that is done")
    (row,) = plant.rows()
    assert row.attempt == before.attempt + 1
    other.kill()
    newest = plant.node.engine.newest_commit
    if end == "paused":
        lost.signal(signal.SIGCONT)
        plant.until(lost, lambda: "no more" in lost.text(), "being told that others have it")
    assert plant.node.engine.newest_commit == newest
    assert plant.is_merged()


@pytest.mark.slow
def test_a_worker_of_a_cluster_does_what_waits_by_leases_of_its_own(
    plant: Plant, tmp_path: Path
) -> None:
    """What is sent to it, without a cluster."""
    from receiver.spark.backlog.task_backlog import BacklogPlan

    token = tmp_path / "worker.token"
    token.write_text(plant.token)
    plan = BacklogPlan(plant.url, ("merge",), None, str(token), (str(plant.world.data),), 1 << 30)
    numbers = pa.RecordBatch.from_pydict({"id": pa.array([0, 1], pa.int64())})
    with hurrying():
        done = [row for each in plan([numbers]) for row in each.to_pylist()]
    assert [each["tasks"] for each in done] == [1, 0]
    assert plant.states() == ["done"]
    assert plant.is_merged()
    assert plant.rows()[0].attempt == 1


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_workers_of_a_cluster_do_what_waits_each_by_its_own_lease(
    plant: Plant, spark: SparkSession, tmp_path: Path
) -> None:
    from receiver.spark.backlog.task_backlog import work_off

    token = tmp_path / "worker.token"
    token.write_text(plant.token)
    with hurrying():
        done = work_off(spark, plant.url, workers=2, token_file=str(token))
    assert len(done) == 2
    assert sum(each.tasks for each in done) == 1
    assert plant.states() == ["done"]
    assert plant.is_merged()
