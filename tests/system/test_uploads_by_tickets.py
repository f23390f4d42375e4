"""An edge, a master and storage nodes: whatever a node does, files come whole and once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from common.errors import ForbiddenError
from receiver.web.server import ServerTls, TlsFiles
from sender.round.file_source import DirectorySource
from tests.support.edge import WEEK_MS
from tests.support.tsfile_bytes import build
from tests.support.upload_cluster import LARGE, Fault, StorageMachine, UploadCluster
from tests.support.web import make_certificate, until

pytestmark = pytest.mark.slow


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Callable[..., UploadCluster]]:
    clusters: list[UploadCluster] = []

    def make(nodes: int = 1, **more: object) -> UploadCluster:
        clusters.append(UploadCluster(tmp_path, nodes, **more))  # type: ignore[arg-type]
        clusters[-1].settle()
        return clusters[-1]

    yield make
    for each in clusters:
        each.close()


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UploadCluster]:
    """One cluster for many: what a test breaks it puts right."""
    cluster = UploadCluster(tmp_path_factory.mktemp("standing"))
    cluster.settle()
    yield cluster
    cluster.close()


@pytest.fixture
def cluster(standing: UploadCluster) -> Iterator[UploadCluster]:
    standing.beat()  # or a node that nobody heard of for as long as a slow machine takes is down
    yield standing
    for each in standing.machines:
        each.heal()
        each.served.node.pulls.run_once()
    standing.with_nodes(True)


def test_bytes_go_to_the_node_and_no_token_does(cluster: UploadCluster):
    (machine,) = cluster.machines
    paths = [cluster.write(), cluster.write()]
    machine.taken = 0
    assert cluster.edge.round().exit_code == 0
    assert cluster.has(*paths)
    assert machine.taken >= 2 * LARGE
    of_edge = [headers for _, path, headers in machine.seen if path.startswith("/sync/")]
    assert of_edge
    assert not any("HTTP_AUTHORIZATION" in each or cluster.secret in str(each) for each in of_edge)
    assert all(each["HTTP_TSFERRY_SENDER"] == cluster.edge.uuid for each in of_edge)


def test_the_first_file_of_a_partition_goes_to_the_node_of_its_new_tablet(cluster: UploadCluster):
    """As every midnight: the plan has the tablet made, and the node says at once that it is."""
    (machine,) = cluster.machines
    beats: list[threading.Thread] = []

    def beat() -> None:
        beats.append(threading.Thread(target=machine.beat, args=(cluster.node,)))
        beats[-1].start()

    machine.served.node.copies.notify(beat)
    path = cluster.edge.path(1).replace("/0/0/", "/0/1/")
    points = {"root.a.d1": {"s1": [(WEEK_MS + 1, 1)]}}
    cluster.edge.put(path, build(points, pad_to=LARGE))
    machine.taken = 0
    assert cluster.edge.round().exit_code == 0
    machine.served.node.copies.notify(lambda: None)
    for each in beats:
        each.join()
    assert cluster.has(path)
    assert machine.taken >= LARGE
    assert len(machine.served.node.copies.tablets()) == 2


def dies_at(machine: StorageMachine, method: str, after: int) -> None:
    """The node is gone for good behind so many of its calls of a kind."""
    left = [after]

    def before(called: str, path: str) -> None:
        if called == method and path.startswith(("/sync/", "/node/v1/staged")):
            left[0] -= 1
        if left[0] < 0:
            raise Fault("it is gone")

    machine.before = before


def test_a_node_that_dies_in_the_middle_costs_a_repeated_upload_and_no_more(cluster: UploadCluster):
    (machine,) = cluster.machines
    for method, after in (("POST", 0), ("PATCH", 2), ("GET", 0)):
        dies_at(machine, method, after)
        path = cluster.write()
        report = cluster.edge.round()
        assert report.exit_code == 0, (method, report)
        assert cluster.has(path), method
        machine.heal()
        assert machine.served.node.pulls.run_once() == 0
        assert cluster.staged() == [], method  # nothing of it is waited for


def test_with_the_first_node_dead_the_next_one_takes_the_bytes(
    made: Callable[..., UploadCluster],
):
    cluster = made(2)
    before = [each.count("PATCH") for each in cluster.machines]
    for each in cluster.machines:
        dies_at(each, "PATCH", 1)
    path = cluster.write()
    assert cluster.edge.round().exit_code == 0
    assert cluster.has(path)
    after = [each.count("PATCH") for each in cluster.machines]
    assert all(each > was for each, was in zip(after, before, strict=True))


def test_a_node_that_gives_other_bytes_is_found_out_before_anything_counts(cluster: UploadCluster):
    (machine,) = cluster.machines
    machine.alter = lambda content: content[:-1] + b"?" if content else content
    path = cluster.write()
    assert cluster.edge.round().exit_code == 0
    assert machine.count("GET")
    assert cluster.has(path)


def test_other_bytes_that_were_read_ahead_do_not_keep_a_file_out(
    cluster: UploadCluster, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("sender.send.sent_bytes.node_sending._AHEAD", 60_000)
    monkeypatch.setattr("sender.send.sent_bytes.node_sending._AHEAD_S", 0.0)
    (machine,) = cluster.machines
    machine.alter = lambda content: content[:-1] + b"?" if content else content
    left = [3]

    def die_once_some_was_read(method: str, path: str) -> None:
        if method == "PATCH" and left[0] <= 0:
            until(lambda: cluster.node.uploads.numbers()[1] > 0, "some was read ahead")
            left[0] = -99
        left[0] -= method == "PATCH"
        if left[0] < -90:
            raise Fault("it is gone")

    machine.before = die_once_some_was_read
    path = cluster.write()
    digest = cluster.edge.files[path]  # it was read before: a sender does not try that again
    monkeypatch.setattr(DirectorySource, "md5_known", lambda self, file: digest)
    assert cluster.edge.round().exit_code == 0
    assert left[0] < -90
    assert cluster.has(path)


def test_an_edge_goes_on_at_the_node_where_it_was_when_the_master_has_died(
    made: Callable[..., UploadCluster],
):
    cluster = made()
    (machine,) = cluster.machines
    path = cluster.write()
    machine.taken = 0

    def master_dies(method: str, path: str) -> None:
        if path == "/node/v1/staged":
            raise Fault("nothing comes")
        if method == "PATCH" and machine.taken > LARGE - 70_000:
            cluster.edge.stop.set()

    machine.before = master_dies
    assert cluster.edge.round().exit_code != 0
    machine.before = lambda method, path: None
    cluster.edge.stop.clear()
    sent = machine.taken
    assert sent > LARGE // 2
    cluster.restart()
    cluster.beat()
    assert cluster.edge.round().exit_code == 0
    assert cluster.has(path)
    assert machine.taken - sent < LARGE // 2


def test_a_node_that_was_started_anew_goes_on_where_it_was(made: Callable[..., UploadCluster]):
    cluster = made()
    (machine,) = cluster.machines
    path = cluster.write()
    machine.taken = 0

    def stop(method: str, path: str) -> None:
        if method == "PATCH" and machine.taken > LARGE // 2:
            cluster.edge.stop.set()

    machine.before = stop
    assert cluster.edge.round().exit_code != 0
    machine.before = lambda method, path: None
    cluster.edge.stop.clear()
    sent = machine.taken
    machine.restart()
    cluster.beat()
    assert cluster.edge.round().exit_code == 0
    assert cluster.has(path)
    assert machine.taken - sent < LARGE // 2 + 70_000


def test_a_ticket_that_grew_old_is_exchanged_and_one_that_stays_so_costs_the_way_to_the_master(
    cluster: UploadCluster,
):
    (machine,) = cluster.machines
    keys = machine.served.node.tickets
    check, refused = keys.check_upload, []

    def old(ticket: str) -> str:
        if len(refused) < most:
            refused.append(ticket)
            raise ForbiddenError("too old")
        return check(ticket)

    keys.check_upload = old  # type: ignore[method-assign]
    for most in (1, 99):
        refused.clear()
        path = cluster.write()
        machine.taken = 0
        assert cluster.edge.round().exit_code == 0
        assert cluster.has(path)
        assert (machine.taken >= LARGE) is (most == 1)
    assert len(refused) == 2
    keys.check_upload = check  # type: ignore[method-assign]


def test_what_was_sent_to_a_node_becomes_its_copy_without_another_transfer(cluster: UploadCluster):
    (machine,) = cluster.machines
    machine.served.node.pulls.run_once()
    before = machine.files()
    paths = [cluster.write() for _ in range(3)]
    assert cluster.edge.round().exit_code == 0
    assert len(cluster.staged()) == 6
    fetched: list[str] = []
    content = machine.served.node.pulls._calls.content

    def counted(physical: str, begin: int, length: int) -> bytes:
        fetched.append(physical)
        return content(physical, begin, length)

    machine.served.node.pulls._calls.content = counted  # type: ignore[method-assign]
    assert machine.served.node.pulls.run_once() == 0
    assert cluster.staged() == []
    assert fetched == []
    assert machine.files() == before + 3
    with cluster.node.engine.reading() as state:
        rows = [row for row in state.files.values() if row.path in paths]
        assert all(cluster.node.copies.book.nodes_with(state, row) for row in rows)


def test_old_edges_and_old_masters_are_as_they_were(cluster: UploadCluster):
    (machine,) = cluster.machines
    cluster.with_nodes(False)
    first = cluster.write()
    machine.taken = 0
    assert cluster.edge.round().exit_code == 0
    cluster.with_nodes(True)
    tasks = cluster.node.tasks
    nodes, tasks._nodes = tasks._nodes, None
    second = cluster.write()
    assert cluster.edge.round().exit_code == 0
    tasks._nodes = nodes
    assert cluster.has(first, second)
    assert machine.taken == 0


def test_a_node_is_spoken_to_by_tls_and_with_the_authorities_that_are_configured(
    made: Callable[..., UploadCluster], tmp_path: Path
):
    pairs = []
    for name in ("master", "node"):
        (tmp_path / name).mkdir()
        pairs.append(make_certificate(tmp_path / name, "127.0.0.1"))
    (master, key), (node, node_key) = pairs
    cluster = made(
        tls=ServerTls(TlsFiles(master, key)),
        node_tls=ServerTls(TlsFiles(node, node_key)),
        ca_cert=node,
        node_ca_cert=master,
        ca_file=master,
        nodes_ca_file=node,
    )
    (machine,) = cluster.machines
    path = cluster.write()
    machine.taken = 0
    assert cluster.edge.round().exit_code == 0
    assert cluster.has(path)
    assert machine.taken >= LARGE

    cluster.with_nodes(True, nodes_ca_file=None)  # the receiver's: it did not sign the node's
    path = cluster.write()
    machine.taken = 0
    assert cluster.edge.round().exit_code == 0
    assert cluster.has(path)
    assert machine.taken == 0
