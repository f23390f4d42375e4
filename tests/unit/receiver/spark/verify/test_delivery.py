"""Verdicts reach the engine: by way of the server, or without one."""

from __future__ import annotations

import threading

import msgspec
import pytest

from common.errors import LockedError, TsferryError
from receiver.load.merge_verdicts import BadMerge, ProvedMerge
from receiver.load.upkeep.verdicts import MOST_VERDICTS, Verdict
from receiver.node import Node
from receiver.open_engine import open_engine
from receiver.operator.status import running_status
from receiver.operator.stored.files import list_files
from receiver.operator.stored.quarantine import list_quarantine
from receiver.operator.views.verdict_wire import VerdictsAnswer
from receiver.spark.verify import delivery
from receiver.spark.verify.delivery import Delivered, deliver, deliver_merges
from receiver.web import serving
from tests.support.node_world import Edge, World, path_of, tsfile
from tests.support.web import BOUND


@pytest.fixture
def config(tmp_path):
    given = World(tmp_path).config
    listen = msgspec.structs.replace(given.listen, port=0)
    return msgspec.structs.replace(given, listen=listen)


@pytest.fixture
def verdicts(config):
    with Node.open(config) as node:
        Edge(node).round({path_of(each): tsfile(first=each * 10) for each in range(1, 6)})
        files = list_files(node.operator).files
    reasons = {path_of(2): "page 1 of root.sg.d1.s1: its sum differs", path_of(3): "x\ud800"}
    return [Verdict(each.physical, each.md5, reasons.get(each.path)) for each in files]


@pytest.fixture
def running(config, verdicts, monkeypatch):
    servers = []

    class Kept(serving.Server):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            servers.append(self)

    monkeypatch.setattr(serving, "Server", Kept)
    ready = threading.Event()
    thread = threading.Thread(
        target=serving.serve, args=(config,), kwargs={"ready": lambda url: ready.set()}
    )
    thread.start()
    assert ready.wait(BOUND)
    yield servers[0]
    servers[0].stop(2)
    thread.join(BOUND)


@pytest.fixture(params=["a server", "no server"])
def either(request, verdicts):
    if request.param == "a server":
        request.getfixturevalue("running")
    return request.param


def test_verdicts_are_committed_with_and_without_a_server(either, config, verdicts, monkeypatch):
    monkeypatch.setattr(delivery, "MOST_VERDICTS", 2)  # so that there are pages
    late = Verdict(verdicts[0].physical, "0" * 32)
    assert deliver(config, [*verdicts, late]) == Delivered(3, 2, 1)
    assert deliver(config, [*verdicts, late]) == Delivered(3, 2, 1)
    if either == "a server":
        assert delivery.OperatorClient(config).ask("GET", "/v1/status", dict)["verified"] == 3


def test_what_was_delivered_without_a_server_is_there_for_the_next_one(config, verdicts):
    deliver(config, verdicts)
    with Node.open(config) as node:
        bad = list_quarantine(node.engine)
        assert [each.reason for each in bad] == ["page 1 of root.sg.d1.s1: its sum differs", "x?"]
        assert running_status(node.operator, node.problem()).verified == 3


def test_nothing_to_deliver_needs_nobody(tmp_path):
    assert deliver(World(tmp_path / "nowhere").config, []) == Delivered(0, 0, 0)


def test_a_holder_that_does_not_answer_is_named(config, verdicts):
    with open_engine(config), pytest.raises(LockedError, match="no receiver answers"):
        deliver(config, verdicts)


def test_a_page_keeps_to_the_limit_of_a_request(config, verdicts):
    many = [Verdict(f"sequence/root.sg/0/0/{each}-1-0.tsfile", "0" * 32) for each in range(100)]
    pages = list(delivery._pages(many, 4096))
    assert [each for page in pages for each in page] == many
    assert len(pages) > 1
    assert [len(each) for each in delivery._pages(many * 250, 1 << 30)] == [
        MOST_VERDICTS,
        MOST_VERDICTS,
        5000,
    ]


def test_what_is_told_of_merges_keeps_to_the_limit_of_a_request(config, monkeypatch):
    """A merge may have many merged files, and all of them are named."""
    limit = 20_000
    listen = msgspec.structs.replace(config.listen, max_request_bytes=limit)
    config = msgspec.structs.replace(config, listen=listen)
    told = []

    class Client:
        def __init__(self, _):
            pass

        def ask(self, method, path, kind, *, body):
            assert len(msgspec.json.encode(body)) <= limit
            told.append(body)
            proved = len(body.proved_compactions)
            return VerdictsAnswer(dissolved=len(body.compactions), compactions_verified=proved)

    monkeypatch.setattr(delivery, "OperatorClient", Client)
    names = [f"sequence/root.sg/0/0/merged-1-{at}.tsfile" for at in range(30)]
    outputs = tuple((each, 1 << 28, "0" * 32) for each in names)
    proved = [ProvedMerge(each, outputs) for each in range(50)]
    bad = [BadMerge(each, "x" * 400) for each in range(100, 130)]
    done = deliver_merges(config, bad, proved)
    assert (done.dissolved, done.merges_verified) == (30, 50)
    assert [each.id for body in told for each in body.proved_compactions] == list(range(50))
    assert deliver_merges(config, [], []) == Delivered(0, 0, 0)


def test_a_server_that_refuses_says_why(running, config, verdicts):
    with pytest.raises(TsferryError, match="md5"):
        deliver(config, [Verdict(verdicts[0].physical, "no MD5")])
