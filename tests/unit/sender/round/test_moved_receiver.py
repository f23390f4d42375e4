"""A receiver with several addresses: whichever answers as the one at work, and no other engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from common.config import Secret
from common.errors import ConflictError, NotTheWriterError, UnreachableError
from sender.kept.receiver_file import ReceiverFile
from tests.support.edge import Edge
from tests.support.ports import free_port
from tests.support.scripted_receiver import Answer, Drop, Fault, ScriptedReceiver, problem, redirect

FENCED = Answer(problem(NotTheWriterError, "not master any more"))


@pytest.fixture
def first() -> Iterator[ScriptedReceiver]:
    with ScriptedReceiver() as running:
        yield running


@pytest.fixture
def second() -> Iterator[ScriptedReceiver]:
    with ScriptedReceiver() as running:
        yield running


@pytest.fixture
def edge(first: ScriptedReceiver, second: ScriptedReceiver, tmp_path: Path) -> Edge:
    made = Edge(tmp_path / "edge", first.url, transfer={"max_retries": 1})
    made.with_standbys(second.url)
    return made


def nobody() -> str:
    """An address at which nobody listens: as of a stand-by that waits."""
    return f"http://127.0.0.1:{free_port()}"


def remembered(edge: Edge) -> str | None:
    remote = edge.remote()
    with remote.sync_tree() as sync:
        return ReceiverFile.open(sync, remote.directory).now.address


def takes_over(second: ScriptedReceiver, first: ScriptedReceiver) -> None:
    """What is committed, in etcd, is there; what was staged is not."""
    second.loaded, second.commit, second.epoch = first.loaded, first.commit, first.epoch
    first.fault(".*", *[FENCED] * 1000)


def test_who_stands_by_is_passed_over_and_who_answered_is_asked_first_by_the_next_process(
    edge, first, second
):
    edge.with_url(nobody())
    edge.write(1)
    report = edge.round()
    assert (report.exit_code, report.sent, report.address) == (0, 1, second.url)
    assert remembered(edge) == second.url
    second.requests.clear()
    first.fault("POST /check", *[FENCED] * 100)
    edge.with_standbys(first.url, second.url)
    assert edge.round().address == second.url
    assert first.requests == []


def test_a_round_whose_receiver_is_fenced_in_the_middle_begins_anew_at_the_other(
    edge, first, second
):
    edge.write(1)
    assert edge.round().address == first.url
    path = edge.write(2)
    first.fault("POST /tasks/.*/batch", FENCED)
    first.decide = lambda entry: takes_over(second, first)
    report = edge.round()
    assert (report.exit_code, report.sent, report.address) == (0, 1, second.url)
    assert sorted(second.loaded) == sorted(edge.files)
    assert [each.path for each in second.plans] == [path]  # the first one does not travel again
    assert edge.listed == sorted(edge.files)
    assert edge.leftovers == []
    assert edge.round().quiet


def test_a_round_whose_receiver_dies_in_the_middle_begins_anew_at_the_other(edge, first, second):
    edge.write(1)
    edge.round()
    edge.write(2, size=3 << 20)
    first.decide = lambda entry: _dies(second, first)
    report = edge.round()
    assert (report.exit_code, report.sent, report.address) == (0, 1, second.url)
    assert sorted(second.loaded) == sorted(edge.files)
    assert edge.leftovers == []


def _dies(second: ScriptedReceiver, first: ScriptedReceiver) -> None:
    takes_over(second, first)
    first.faults.clear()
    first.fault(".*", *[Drop()] * 1000)


def test_what_was_loaded_and_told_by_nobody_is_learned_of_the_other_and_not_sent_again(
    edge, first, second
):
    """The commit is in etcd, and its answer was lost with the first."""
    edge.write(1)
    edge.round()
    edge.write(2)
    second.tasks = first.tasks
    first.fault("POST /tasks/.*/end", _LastWord(second, first))
    report = edge.round()
    assert (report.exit_code, report.sent, report.address) == (0, 1, second.url)
    assert second.plans == []
    assert sorted(second.loaded) == sorted(edge.files)
    assert edge.listed == sorted(edge.files)
    assert edge.round().quiet


class _LastWord(Fault):
    """The work is done, its answer is lost, and the other one takes over."""

    def __init__(self, second: ScriptedReceiver, first: ScriptedReceiver) -> None:
        self.both = second, first

    def after(self, handler, request, reply):
        takes_over(*self.both)
        return True


def test_a_round_begins_anew_once_and_its_error_is_told_when_nobody_answers(edge, first, second):
    edge.write(1)
    first.fault("POST /tasks/.*/batch", *[FENCED] * 100)
    second.fault(".*", *[FENCED] * 100)
    report = edge.round()
    assert isinstance(report.error, NotTheWriterError)
    assert first.count("POST /check") == 2
    assert edge.listed == []


def test_another_engine_behind_one_of_the_addresses_is_refused_and_told_nothing(
    edge, first, second
):
    edge.write(1)
    edge.round()
    second.engine = "f" * 32
    edge.write(2)
    first.fault(".*", *[Drop()] * 1000)
    report = edge.round()
    assert isinstance(report.error, UnreachableError | ConflictError)
    assert f"{second.url} is engine {'f' * 32}" in report.error.message
    assert set(second.names()) == {"POST /check"}
    assert len(edge.listed) == 1


def test_another_engine_is_taken_when_the_operator_says_that_it_is_right(edge, first, second):
    edge.write(1)
    edge.round()
    second.engine = "f" * 32
    first.fault(".*", *[Drop()] * 1000)
    report = edge.round(accept_receiver=True)
    assert (report.exit_code, report.address) == (0, second.url)
    assert sorted(second.loaded) == sorted(edge.files)  # compared, and sent to the new one


def test_a_token_goes_to_no_address_that_the_configuration_does_not_name(edge, first, second):
    with ScriptedReceiver() as foreign:
        entry = replace(edge.config.receivers[0], token=Secret("secret-of-the-edge"))
        edge.with_settings(receivers=(entry,))
        edge.write(1)
        first.fault("POST /check", Answer(redirect(f"{foreign.url}/sync/v1/check")))
        elsewhere = f"this node only reads; the writer is at {foreign.url}"
        second.fault("POST /check", Answer(problem(NotTheWriterError, elsewhere)))
        report = edge.round()
        assert report.error is not None
        assert foreign.requests == []
        assert first.requests[0].headers["authorization"] == "Bearer secret-of-the-edge"
