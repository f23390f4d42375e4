"""`tasks`: what a receiver does behind the scenes, and others do for it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

import click

from common.console.cli import Invocation, emit_json
from common.console.json_option import json_option
from common.console.terminal import printable
from common.names import is_task_id
from receiver.background.work_queue import WorkQueue
from receiver.cli.box_commands.run_tasks import run
from receiver.cli.showing import moment, show
from receiver.config import ReceiverConfig
from receiver.open_engine import open_engine
from receiver.operator.asked_work.background_tasks import (
    ADDED_BY_HAND,
    TASK_STATES,
    add_task,
    cancel_task,
    list_tasks,
    retry_task,
)
from receiver.operator.client import NotRunningError, OperatorClient, ask_all, segment
from receiver.operator.views.background_views import (
    BackgroundTasksPage,
    CancelRequest,
    TaskAddRequest,
    TaskNamed,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from receiver.metadata.engine import Engine

__all__ = ["tasks"]

T = TypeVar("T")
_HEADERS = ("TASK", "KIND", "STATE", "SCOPE", "PRIORITY", "ATTEMPT", "EXECUTOR", "SINCE", "REASON")
_CODES = (
    "Works without a server too. Exit codes: 0 done; 2 there is no such task; 3 it does not stand "
    "so; 4 the receiver refuses; 5 another process has the directories."
)


@click.group()
def tasks() -> None:
    """Background tasks: what waits, what runs, and the last that ended."""


@tasks.command(
    "list",
    epilog="Example: tsferry-receiver tasks list --state failed. Works without a server too. "
    "Exit codes: 0 done; 2 configuration; 4 the receiver refuses.",
)
@click.option("--state", type=click.Choice(TASK_STATES), help="Only those that stand so.")
@click.option("--kind", help="Only of this kind.")
@click.option("--limit", type=click.IntRange(min=1), help="At most so many.")
@json_option(BackgroundTasksPage)
@click.pass_obj
def list_background(
    invocation: Invocation[ReceiverConfig],
    state: str | None,
    kind: str | None,
    limit: int | None,
    as_json: bool,
) -> None:
    """Tasks in the order in which they were added. SINCE is when they came to stand so."""
    found = ask_all(
        invocation.load().value,
        "/v1/tasks",
        BackgroundTasksPage,
        lambda page: page.tasks,
        {"state": state, "kind": kind},
        partial(list_tasks, state=state, kind=kind),
        limit,
    )
    answer = BackgroundTasksPage(tasks=found)
    rows = [
        (
            each.task,
            each.kind,
            f"{each.state}, overdue" if each.overdue else each.state,
            ", ".join(each.scope),
            each.priority,
            each.attempt,
            each.executor or "-",
            moment(each.changed_at),
            each.reason,
        )
        for each in answer.tasks
    ]
    show(answer, as_json, _HEADERS, rows, "no background tasks")


@tasks.command(
    epilog="Example: tsferry-receiver tasks add prove root.plant 2954. Works without a server too. "
    "Exit codes: 0 done; 2 wrong usage; 3 an open task has a part of it; 4 the receiver refuses; 5 "
    "another process has the directories."
)
@click.argument("kind", type=click.Choice(ADDED_BY_HAND))
@click.argument("group")
@click.argument("partition", default="")
@click.option(
    "--priority",
    type=click.IntRange(-128, 127),
    default=0,
    show_default=True,
    help="The highest is taken first.",
)
@json_option(TaskNamed)
@click.pass_obj
def add(
    invocation: Invocation[ReceiverConfig],
    kind: str,
    group: str,
    partition: str,
    priority: int,
    as_json: bool,
) -> None:
    """Have KIND be done for a storage group, or one time partition of it."""
    request = TaskAddRequest(kind=kind, group=group, partition=partition, priority=priority)
    added = _either(
        invocation,
        lambda server: server.ask("POST", "/v1/tasks", TaskNamed, body=request),
        lambda engine: TaskNamed(task=str(add_task(engine, WorkQueue(engine), request))),
    )
    if as_json:
        emit_json(added)
    else:
        click.echo(added.task)


@tasks.command(epilog=f"Example: tsferry-receiver tasks cancel 468000123. {_CODES}")
@click.argument("task")
@click.option("--reason", default="", help="For people.")
@json_option(TaskNamed)
@click.pass_obj
def cancel(invocation: Invocation[ReceiverConfig], task: str, reason: str, as_json: bool) -> None:
    """Have nobody do TASK; who does it now commits no more of it. A failed one counts no more.

    TASK may be the id of a load at the centre, which the server that runs has: what is not
    committed of it is not loaded. Of one that waits for copies elsewhere the wait ends, and what it
    has loaded stays (exit code 3).
    """

    def by_server(server: OperatorClient) -> None:
        request = CancelRequest(reason=reason)
        server.tell("POST", f"/v1/tasks/{segment(task)}/cancel", request)

    if is_task_id(task):  # a load, which no directory goes on with
        by_server(OperatorClient(invocation.load().value))
    else:
        _either(
            invocation,
            by_server,
            lambda engine: cancel_task(engine, WorkQueue(engine), task, reason),
        )
    _said("cancelled", task, as_json)


@tasks.command(epilog=f"Example: tsferry-receiver tasks retry 468000123. {_CODES}")
@click.argument("task")
@json_option(TaskNamed)
@click.pass_obj
def retry(invocation: Invocation[ReceiverConfig], task: str, as_json: bool) -> None:
    """Have TASK wait again that failed or was cancelled."""
    _either(
        invocation,
        lambda server: server.tell("POST", f"/v1/tasks/{segment(task)}/retry"),
        lambda engine: retry_task(engine, WorkQueue(engine), task),
    )
    _said("waits again", task, as_json)


tasks.add_command(run)


def _said(what: str, task: str, as_json: bool) -> None:
    if as_json:
        emit_json(TaskNamed(task=task))
    else:
        click.echo(f"{what}: {printable(task)}")


def _either(
    invocation: Invocation[ReceiverConfig],
    server: Callable[[OperatorClient], T],
    engine: Callable[[Engine], T],
) -> T:
    """Have the running server do it; without one it is done in its directories."""
    config = invocation.load().value
    try:
        return server(OperatorClient(config))
    except NotRunningError:
        with open_engine(config) as opened:
            return engine(opened)
