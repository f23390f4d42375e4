"""Every call that writes fails once, for each passage of it; the round is simply made again.

A full disk heals without a restart. A failed flush of a directory takes the process's word away
(it must be started again); nothing acknowledged before is lost either way.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import common.durable as durable
from common.errors import TsferryError
from receiver.node import Node
from tests.fault.receiver import test_node_crash as crashes
from tests.support import tiers
from tests.support.node_world import A, Edge, World, path_of, results, tsfile

CALLS = ("write", "pwrite", "fsync", "fdatasync", "rename", "mkdir", "ftruncate", "unlink", "rmdir")

EACH, STEP = (5, 13) if tiers.is_long() else (3, 29)
"""Each of the first passages, then one of so many."""


class Failing:
    """Lets one passage of one call fail, in whatever thread."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, call: str, nth: int, code: int) -> None:
        self.seen = 0
        self.failed = False
        real: Callable[..., object] = getattr(os, call)

        def stand_in(*args: object, **more: object) -> object:
            self.seen += 1
            if self.seen == nth:
                self.failed = True
                raise OSError(code, os.strerror(code))
            return real(*args, **more)

        monkeypatch.setattr(os, call, stand_in)


def try_until_done(world: crashes.World, told: crashes.Told) -> dict[str, str]:
    """A sender that comes again and again; the receiver is started anew only if it must be."""
    last: Exception | None = None
    tries = 0
    while tries < 8:
        try:
            node = world.node()
        except (TsferryError, OSError) as error:
            durable.flushing._failure = None  # what a new process has
            last, tries = error, tries + 1
            continue
        with node:
            while tries < 8:
                tries += 1
                try:
                    return one_try(node, told)
                except (TsferryError, OSError) as error:
                    last = error
                    if node.problem() is not None:
                        break
        durable.flushing._failure = None
    raise AssertionError("the round does not come to an end") from last


def one_try(node: Node, told: crashes.Told) -> dict[str, str]:
    edge = Edge(node, epoch=str(told.last("epoch")))
    edge.start(crashes.TASK, crashes.wire.Propagate.ALL)
    told.note(epoch=edge.epoch)
    state = node.tasks.answer(edge.who, A, crashes.TASK).state
    if state is crashes.wire.TaskState.OPEN:
        crashes.send(edge, told)
        edge.end(crashes.TASK, crashes.told_of(), crashes.GONE)
    answer = node.tasks.answer(edge.who, A, crashes.TASK, 5.0)
    if answer.state is not crashes.wire.TaskState.DONE:
        raise TsferryError("still loading")
    return results(edge.outcome(crashes.TASK))


@pytest.mark.few(7)
@pytest.mark.slow
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("call", CALLS)
def test_a_write_that_fails_once_costs_a_retry_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    nth = 0
    while True:
        nth += 1 if nth < EACH else STEP
        root = tmp_path / str(nth)
        world, told = crashes.fresh(root)
        with monkeypatch.context() as patch:
            failing = Failing(patch, call, nth, code)
            outcome = try_until_done(world, told)
        durable.flushing._failure = None
        crashes.check_end(world, outcome)
        shutil.rmtree(root)
        if not failing.failed:
            break
    assert nth > 1


@pytest.mark.slow
@pytest.mark.parametrize("nth", tiers.sample(range(1, 20), 6))
def test_what_cannot_be_removed_of_a_task_does_not_keep_the_next_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    with World(tmp_path).node() as node:
        edge = Edge(node)
        with monkeypatch.context() as patch:
            Failing(patch, "unlink", nth, errno.EIO)
            with suppress(TsferryError, OSError):
                edge.round({path_of(1): tsfile()}, uploads=True)
            for _ in range(2):  # the second drops the first
                with suppress(TsferryError, OSError):
                    edge.start()
        outcome = edge.round({path_of(4): tsfile(first=100)})
        assert results(outcome) == {path_of(4): "loaded"}
