"""Executors as processes of their own: killed, paused, refused, two of them; what they prove."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from receiver.metadata.state.table_rows import FileState
from receiver.metadata.state.work_rows import WorkRow
from receiver.node import Node
from receiver.operator.edges.tokens import make_token
from receiver.web.app import close, create_app, site_of
from tests.support.hurrying import hurry
from tests.support.node_world import World
from tests.support.procs import BOUND, Child, Children, children, wait_until
from tests.support.proving import Site
from tests.support.web import running

LEASE, SHORT = 60.0, 1.2
"""Seconds; a busy machine lets nobody sleep through the first."""
SOURCES = [f"sequence/root.sg/0/0/{each}-{each}-0-0.tsfile" for each in range(1, 6)]
PRODUCT = "sequence/root.sg/0/0/1-1-0-1.tsfile"
COMMAND = Path(sys.executable).parent / "tsferry-receiver"
pytestmark = pytest.mark.slow


class Plant:
    """A receiver in this process with a partition that is due, and executors beside it."""

    def __init__(self, root: Path, url: str, node: Node, site: Site, processes: Children) -> None:
        self.root, self.url, self.node, self.site = root, url, node, site
        self.processes = processes
        self.token = make_token(node.engine, role="worker").token
        self.reading = threading.Event()
        self.may_read = threading.Event()
        self.may_read.set()
        read = node.content.read

        def slow(*args: object) -> bytes:
            self.reading.set()
            assert self.may_read.wait(BOUND)
            return read(*args)  # type: ignore[arg-type]

        node.content.read = slow  # type: ignore[method-assign]

    def executor(self, *more: str, token: str | None = None) -> Child:
        return self.processes.start(
            [str(COMMAND), "work", "--from", self.url, "--every", "0.2", *more],
            env={"TSFERRY_WORKER_TOKEN": token or self.token},
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

    def proved(self) -> int:
        return sum(self.site.state(each) is FileState.SUPERSEDED for each in SOURCES)

    def until_done(self) -> None:
        wait_until(lambda: self.states() == ["done"], "a task that is done")


@pytest.fixture
def plant(tmp_path: Path) -> Iterator[Plant]:
    world = World(tmp_path / "centre", clock=time.time)
    with world.still_node() as node, children(tmp_path) as processes:
        node.work.lease = LEASE
        node.prover._here = False
        site = Site(node)
        site.round({path: {"a": {at: at}} for at, path in enumerate(SOURCES)})
        site.round({PRODUCT: {"a": {at: at for at in range(len(SOURCES) - 1)}}}, SOURCES)
        node.prover.run_once()
        app = create_app(world.config, node)
        try:
            with running(app, gate=site_of(app).gate) as server:
                host, port = server.addresses[0]
                yield Plant(tmp_path, f"http://{host}:{port}", node, site, processes)
        finally:
            close(app)


def test_an_executor_proves_what_the_receiver_itself_would(plant: Plant) -> None:
    worker = plant.executor("--once")
    assert plant.code(worker) == 0, worker.text()
    assert plant.states() == ["done"]
    assert plant.proved() == 4
    assert plant.site.state(SOURCES[-1]) is FileState.RETIRED


def test_two_executors_do_each_task_once(plant: Plant) -> None:
    one, other = plant.executor("--once"), plant.executor("--once")
    assert (plant.code(one), plant.code(other)) == (0, 0), one.text() + other.text()
    assert plant.states() == ["done"]
    assert plant.rows()[0].attempt == 1
    assert plant.proved() == 4


@pytest.mark.few(1)
@pytest.mark.parametrize("end", ["killed", "paused"])
def test_another_does_what_an_executor_left_and_that_one_adds_nothing(
    plant: Plant, end: str
) -> None:
    plant.may_read.clear()
    plant.node.work.lease = SHORT
    lost = plant.executor()
    plant.until(lost, plant.reading.is_set, "reading")
    lost.signal(signal.SIGKILL if end == "killed" else signal.SIGSTOP)
    plant.may_read.set()
    (before,) = plant.rows()
    assert plant.states() == ["running"], "nobody else has it before its lease is over"
    wait_until(plant.node.work.expire, "the end of its lease")
    plant.node.work.lease = LEASE
    other = plant.executor()
    plant.until(other, lambda: plant.states() == ["done"], "a task that is done")
    (row,) = plant.rows()
    assert row.attempt == before.attempt + 1
    newest = plant.node.engine.newest_commit
    other.kill()
    if end == "paused":
        lost.signal(signal.SIGCONT)
        plant.until(lost, lambda: "no more" in lost.text(), "being told that others have it")
    assert plant.node.engine.newest_commit == newest
    assert (plant.proved(), plant.states()) == (4, ["done"])


def test_a_task_that_is_cancelled_while_an_executor_does_it_stays_so(plant: Plant) -> None:
    plant.may_read.clear()
    worker = plant.executor()
    plant.until(worker, plant.reading.is_set, "reading")
    plant.node.work.cancel(plant.rows()[0], "not now")
    plant.may_read.set()
    plant.until(worker, lambda: "no more" in worker.text(), "being told")
    assert (plant.proved(), plant.states()) == (0, ["cancelled"])
    assert worker.running
    plant.node.work.retry(plant.rows()[0])
    plant.until_done()
    assert plant.proved() == 4


def test_an_executor_that_is_stopped_gives_its_task_back(plant: Plant) -> None:
    plant.may_read.clear()
    worker = plant.executor()
    plant.until(worker, plant.reading.is_set, "reading")
    threading.Timer(0.3, plant.may_read.set).start()
    assert worker.terminate() == 0, worker.text()
    wait_until(lambda: plant.states() == ["pending"], "a task that waits again")
    assert "stopped" in plant.rows()[0].reason


def test_who_has_no_token_of_a_worker_gets_no_task(plant: Plant) -> None:
    for role in ("reader", "operator"):
        made = make_token(plant.node.engine, role=role).token
        worker = plant.executor("--once", token=made)
        code = plant.code(worker)
        assert (code, plant.states()) == ((4, ["pending"]) if role == "reader" else (0, ["done"]))


def test_files_that_are_not_to_be_had_now_fail_nothing(plant: Plant) -> None:
    def away(*_: object) -> bytes:
        plant.reading.set()
        raise OSError(5, "the disk is away")

    read, plant.node.content.read = plant.node.content.read, away  # type: ignore[method-assign]
    worker = plant.executor()
    plant.until(worker, plant.reading.is_set, "reading")
    wait_until(lambda: plant.rows()[0].reason, "a task that was given back")
    assert plant.states() in (["pending"], ["running"])
    plant.node.content.read = read  # type: ignore[method-assign]
    plant.until_done()
    assert plant.proved() == 4
