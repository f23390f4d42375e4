"""What a task may do is judged by its calls of today, and again at its commit."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from common.errors import ForbiddenError
from common.wire import Action, Propagate
from receiver.metadata.model import records
from receiver.metadata.model.errors import UnknownOutcomeError
from receiver.node import Node
from receiver.operator.edges.tokens import make_token, revoke_token
from receiver.operator.stored.files import list_files
from receiver.principal import Principal
from tests.support.node_world import A, Clock, Edge, World, path_of, plan_entry, results, tsfile

NORTH, SOUTH = path_of(1), path_of(2)
FILES = {NORTH: tsfile("root.sg.north"), SOUTH: tsfile("root.sg.south")}


@pytest.fixture
def still(world: World) -> Iterator[Node]:
    """Loads when it is told to."""
    node = world.still_node()
    yield node
    node.close()


def token(node: Node, *scope: str, expires: float | None = None) -> Principal:
    made = make_token(node.engine, "sender", sender=A, scope=scope, expires=expires)
    return Principal("sender", A, scope, made.id, "10.0.0.7")


def brought(edge: Edge) -> str:
    """A task with both files, before its end."""
    task = edge.start()
    edge.plan(task, [plan_entry(path, content) for path, content in FILES.items()])
    edge.batch(task, FILES)
    return task


def paths(node: Node) -> set[str]:
    return {each.path for each in list_files(node.operator).files}


def test_a_resumed_task_is_judged_by_the_scope_of_today(still: Node) -> None:
    edge = Edge(still, who=token(still))
    edge.check()
    task = brought(edge)
    edge.who = token(still, "root.sg.north")
    edge.start(task)
    edge.end(task, FILES)
    assert results(edge.outcome(task)) == {NORTH: "loaded", SOUTH: "refused"}


def test_each_call_is_judged_by_its_own_scope(still: Node) -> None:
    edge = Edge(still, who=token(still))
    edge.check()
    task = edge.start()
    edge.who = token(still, "root.sg.north")
    entries = [plan_entry(path, content) for path, content in FILES.items()]
    north, south = edge.plan(task, entries)
    assert (north.action, south.action) == (Action.SEND, Action.REFUSED)


def test_a_scope_that_became_wider_holds_for_a_resumed_task(still: Node) -> None:
    edge = Edge(still, who=token(still, "root.sg.north"))
    edge.check()
    task = edge.start()
    edge.who = token(still)
    edge.start(task)
    edge.plan(task, [plan_entry(path, content) for path, content in FILES.items()])
    edge.batch(task, FILES)
    edge.end(task, FILES)
    assert set(results(edge.outcome(task)).values()) == {"loaded"}


def test_the_scope_of_the_last_call_survives_a_restart(world: World) -> None:
    node = world.still_node()
    edge = Edge(node, who=token(node))
    edge.check()
    task = brought(edge)
    edge.who = token(node, "root.sg.north")
    edge.end(task, FILES)
    node.close()
    with world.node() as node:
        edge.node = node
        assert results(edge.outcome(task)) == {NORTH: "loaded", SOUTH: "refused"}


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [(Propagate.ALL, Propagate.REPLACED, True), (Propagate.REPLACED, Propagate.ALL, False)],
)
def test_a_resumed_task_deletes_as_the_sender_says_today(
    world: World, before: Propagate, after: Propagate, kept: bool
) -> None:
    with world.node() as node:
        edge = Edge(node)
        edge.check()
        edge.round(FILES)
        task = edge.start(propagate=before)
        edge.deleted(task, [NORTH])
        edge.start(task, propagate=after)
        edge.end(task, {}, [NORTH])
        edge.outcome(task)
        assert (NORTH in paths(node)) is kept


def test_nothing_is_loaded_of_a_token_that_was_revoked_after_the_end(still: Node) -> None:
    edge = Edge(still, who=token(still))
    edge.check()
    task = brought(edge)
    edge.end(task, FILES)
    assert edge.who.token_id is not None
    revoke_token(still.engine, edge.who.token_id)
    outcome = edge.outcome(task)
    assert set(results(outcome).values()) == {"missing"}
    assert "revoked" in str(outcome[NORTH].reason)
    assert paths(still) == set()
    edge.who = token(still)
    task = edge.start()
    entries = [plan_entry(path, content) for path, content in FILES.items()]
    assert {each.action for each in edge.plan(task, entries)} == {Action.HAVE}
    edge.end(task, FILES)
    assert set(results(edge.outcome(task)).values()) == {"loaded"}


def test_nothing_is_loaded_of_a_token_that_expired_after_the_end(world: World) -> None:
    clock = world.clock
    assert isinstance(clock, Clock)
    node = world.still_node()
    edge = Edge(node, who=token(node, expires=clock() + 5))
    edge.check()
    task = brought(edge)
    edge.end(task, FILES)
    clock.now += 6
    assert set(results(edge.outcome(task)).values()) == {"missing"}
    node.close()


@pytest.mark.parametrize("is_kept", [True, False])
def test_what_a_commit_that_was_not_answered_for_has_loaded_stays_where_it_is(
    world: World, monkeypatch: pytest.MonkeyPatch, is_kept: bool
) -> None:
    """A remote log took it, and its answer was lost; the next attempt would decide otherwise."""
    clock = world.clock
    assert isinstance(clock, Clock)
    with world.still_node() as node:
        edge = Edge(node, who=token(node, expires=clock.now + 60))
        edge.check()
        task = brought(edge)
        edge.end(task, FILES)
        assert node.engine._committer is not None
        appender = node.engine._committer._appender
        append, sent = appender.append, []

        def lost(*given: object) -> None:
            sent.append(given)
            raise UnknownOutcomeError("no answer")

        def settle() -> bool:
            if is_kept:
                append(*sent[0])  # type: ignore[arg-type]
            return is_kept

        with monkeypatch.context() as patched:
            patched.setattr(appender, "append", lost)
            node.load.loader.run_due()
        assert sent
        monkeypatch.setattr(appender, "settle", settle)
        clock.now += 100
        node.load.loader._monotonic = lambda: 1e9
        node.load.loader.run_due()
        assert set(results(edge.outcome(task)).values()) == {"loaded" if is_kept else "missing"}
        assert len(world.loaded()) == len(paths(node)) == 2 * is_kept


def test_a_deletion_of_a_token_that_was_revoked_is_held(still: Node) -> None:
    edge = Edge(still, who=token(still))
    edge.check()
    edge.round(FILES)
    task = edge.start(propagate=Propagate.ALL)
    edge.deleted(task, [NORTH])
    edge.end(task, {}, [NORTH])
    assert edge.who.token_id is not None
    revoke_token(still.engine, edge.who.token_id)
    assert results(edge.outcome(task)) == {NORTH: "held"}
    assert NORTH in paths(still)


def test_what_came_without_a_token_is_not_loaded_once_one_was_made(still: Node) -> None:
    edge = Edge(still)
    edge.check()
    task = brought(edge)
    edge.end(task, FILES)
    token(still)
    assert set(results(edge.outcome(task)).values()) == {"missing"}


def test_what_came_without_a_token_is_not_loaded_where_tokens_are_required_now(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = world.still_node()
    edge = Edge(node)
    edge.check()
    task = brought(edge)
    edge.end(task, FILES)
    node.close()
    auth = msgspec.structs.replace(world.config.auth, require="always")
    config = msgspec.structs.replace(world.config, auth=auth)
    with Node.open(config, clock=world.clock, monotonic=world.clock) as node:
        edge.node = node
        assert set(results(edge.outcome(task)).values()) == {"missing"}


def test_an_upload_without_a_task_is_refused_with_its_token(
    still: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    edge = Edge(still, who=token(still))
    edge.check()
    assert edge.who.token_id is not None
    revoked = [records.TokenRevoke(edge.who.token_id)]
    submit = still.load.loader.submit

    def late(*task: object) -> object:
        still.engine.commit(revoked)
        return submit(*task)  # type: ignore[arg-type]

    monkeypatch.setattr(still.load.loader, "submit", late)
    with pytest.raises(ForbiddenError, match="revoked"):
        edge.upload(None, NORTH, FILES[NORTH])
    assert paths(still) == set()
