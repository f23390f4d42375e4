"""A receiver is killed between a commit and its delivery, and its hook is a bad one.

Each run forks a child that opens the node with its hook, does a round and is killed (SIGKILL, all
threads) at one passage of one point. The next life tells what the first did not.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Sequence

import pytest

from common import crash
from common.hooks.hooks_config import HooksConfig
from receiver.operator.stored.files import list_files
from tests.support.node_world import A, Edge, World, path_of, results, tsfile
from tests.support.procs import wait_until

FILES = {path_of(1): tsfile(), path_of(2): tsfile("root.sg.d2")}


def dying(steps: Sequence[str]) -> Callable[[str], None]:
    """Kills this process at the last of these points, in this order."""
    left = list(steps)

    def hook(name: str) -> None:
        if left and name == left[0]:
            left.pop(0)
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    return hook


def life(world: World, steps: Sequence[str]) -> bool:
    """A process that does a round and tells of it; whether it was killed there."""
    child = os.fork()
    if not child:
        with crash.arm(dying(steps)):
            node = world.node()
            Edge(node, uuid=A).round(FILES)
            wait_until(lambda: node.hooks.standings()[0].delivered >= 2, "both events")
            node.close()
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or not status
    return os.WIFSIGNALED(status)


def told(out) -> list[dict]:
    return [json.loads(line) for line in out.read_text().splitlines()]


@pytest.fixture
def out(tmp_path):
    path = tmp_path / "out"
    path.touch()
    return path


def hooked(tmp_path, script: str, **more) -> World:
    hook = tmp_path / "hook"
    hook.write_text(f"#!/bin/sh\n{script}\n")
    hook.chmod(0o755)
    return World(tmp_path / "dc", hooks=HooksConfig(command=(str(hook),), **more))


STEPS = {
    "durable": ("load.decided", "mlog.commit.durable"),
    "published": ("load.decided", "mlog.commit.published"),
    "load.committed": ("load.committed",),
    "finish.done": ("finish.done",),
    "first": ("hooks.delivered",),
    "second": ("hooks.delivered", "hooks.delivered"),
}


@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
def test_a_commit_is_told_at_least_once_wherever_the_receiver_was_killed(tmp_path, out, steps):
    world = hooked(tmp_path, f"cat >> {out}")
    assert life(world, steps), "it was not killed there"
    with world.node() as node:
        wait_until(lambda: node.load.loader.waiting == 0, "what was under way")
        assert {each.path for each in list_files(node.operator).files} == set(FILES)
        wait_until(lambda: loaded(out) == set(FILES), "each loaded file")
        wait_until(lambda: any(each["kind"] == "round" for each in told(out)), "the round")
    events = told(out)
    by_id = {each["id"]: each for each in events}
    assert all(by_id[each["id"]] == each for each in events), "the same event is the same"


def loaded(out) -> set[str]:
    """The files that the hook was told to be loaded."""
    return {
        path for each in told(out) if each["kind"] == "loaded" for path in each["what"]["named"]
    }


@pytest.mark.parametrize(
    "script",
    ["exec sleep 1000", "trap '' TERM; while :; do sleep 1; done", "exec yes", "exit 1", "kill $$"],
)
def test_a_round_does_not_wait_for_a_hook_that_is_bad_and_nothing_is_lost(tmp_path, out, script):
    world = hooked(tmp_path, script)
    with world.node() as node:
        edge = Edge(node, uuid=A)
        for number in range(1, 4):
            found = edge.round({path_of(number): tsfile(f"root.sg.d{number}")})
            assert results(found) == {path_of(number): "loaded"}
        assert node.hooks.standings()[0].delivered == 0
    hook = tmp_path / "hook"
    hook.write_text(f"#!/bin/sh\ncat >> {out}\n")
    with world.node():
        wait_until(lambda: len(loaded(out)) == 3, "all that was not told")
