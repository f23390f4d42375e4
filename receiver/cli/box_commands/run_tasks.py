"""`tasks run`: background tasks done now, by this command."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import click

from common.console.cli import Invocation, emit_json
from common.console.json_option import json_option
from common.console.terminal import printable
from common.errors import EXIT_NOT_LOADED, NotFoundError
from common.text_numbers import whole_number
from receiver.config import ReceiverConfig
from receiver.operator.asked_work.background_tasks import ADDED_BY_HAND, list_tasks
from receiver.operator.client import NotRunningError, OperatorClient
from receiver.operator.paging import collect
from receiver.operator.views.background_views import BackgroundTasksPage, BackgroundTaskView

if TYPE_CHECKING:
    from receiver.executor.executor_files import ExecutorFiles
    from receiver.executor.task_executor import ExecutorCalls

__all__ = ["run"]


class _Receiver(NamedTuple):
    """The receiver of these directories, whether or not it runs.

    Attributes:
        calls: as an executor makes them.
        files: of it.
        page: tasks that stand so, of a kind, after an id.
    """

    calls: ExecutorCalls
    files: ExecutorFiles
    page: Callable[[str | None, str | None, str | None, int | None], BackgroundTasksPage]


@click.command(
    epilog="Example: tsferry-receiver tasks run 470805929243967488. Works without a server too. "
    "What is done elsewhere just then is left there. Exit codes: 0 done, or nothing waits; 2 there "
    "is no such task; 3 it does not wait, has failed or was given back; 4 the receiver refuses; 5 "
    "another process has the directories."
)
@click.argument("task", required=False)
@click.option("--kind", type=click.Choice(ADDED_BY_HAND), help="The next of this kind.")
@click.option("--all", "everything", is_flag=True, help="One after another, until nothing waits.")
@click.option("--memory", default="1GiB", show_default=True, help="That merging may take.")
@json_option(BackgroundTasksPage)
@click.pass_obj
def run(
    invocation: Invocation[ReceiverConfig],
    task: str | None,
    kind: str | None,
    everything: bool,
    memory: str,
    as_json: bool,
) -> int:
    """Do TASK here and now, whatever the hour; the next that waits, if none is named."""
    from common.config.units import parse_size
    from common.console.progress_line import showing_progress
    from receiver.executor.task_executor import Executor

    config = invocation.load().value
    ran: list[BackgroundTaskView] = []
    with _receiver(config) as receiver, showing_progress(as_json) as told:
        executor = Executor(
            receiver.calls,
            receiver.files,
            wait=time.sleep,
            memory=parse_size(memory),
            told=told,
        )
        left = [_named(receiver, task)] if task else _waiting(receiver, kind)
        while left:
            executor.run_once([left[0].kind], left[0].task)
            ran.append(_named(receiver, left[0].task))
            if task or not everything:
                break
            done = {each.task for each in ran}  # what was given back is not tried over and over
            left = [each for each in _waiting(receiver, kind) if each.task not in done]
    if as_json:
        emit_json(BackgroundTasksPage(tasks=ran))
    else:
        _say(ran)
    return 0 if all(each.state == "done" for each in ran) else EXIT_NOT_LOADED


def _say(ran: list[BackgroundTaskView]) -> None:
    for each in ran:
        scope, why = ", ".join(each.scope), f": {each.reason}" if each.reason else ""
        click.echo(printable(f"{each.task} {each.kind} {scope}: {each.state}{why}"))
    if not ran:
        click.echo("no background task waits")


def _named(receiver: _Receiver, task: str) -> BackgroundTaskView:
    """A task by its id.

    Raises:
        NotFoundError: there is none.
    """
    number = whole_number(task)
    if number:
        found = receiver.page(None, None, str(number - 1) if number > 1 else None, 1).tasks
        if found and found[0].task == str(number):
            return found[0]
    raise NotFoundError(f"there is no background task {task[:40]!a}, or it ended long ago")


def _waiting(receiver: _Receiver, kind: str | None) -> list[BackgroundTaskView]:
    """What waits, in the order in which it is done."""
    found = collect(
        lambda after, most: receiver.page("pending", kind, after, most), lambda one: one.tasks, None
    )
    return sorted(found, key=lambda each: (-each.priority, int(each.task)))


@contextmanager
def _receiver(config: ReceiverConfig) -> Iterator[_Receiver]:
    from receiver.executor import operated_receiver as operated
    from receiver.executor.executor_files import ExecutorFiles
    from receiver.executor.worker_calls import WorkerCalls, executor_name

    def of_server(
        state: str | None, kind: str | None, after: str | None, most: int | None
    ) -> BackgroundTasksPage:
        query = {"state": state, "kind": kind, "after": after, "limit": most}
        return client.ask("GET", "/v1/tasks", BackgroundTasksPage, query=query)

    name = executor_name()
    try:
        client = OperatorClient(config)
        of_server("pending", None, None, 1)
    except NotRunningError:
        pass
    else:
        reads = operated.OperatorReads(client)
        files = ExecutorFiles(reads, config.data_dirs)
        yield _Receiver(WorkerCalls(operated.OperatorCalls(client), name), files, of_server)
        return
    with operated.stopped_receiver(config) as (there, work):
        yield _Receiver(
            operated.StoppedCalls(work, name),
            ExecutorFiles(None, config.data_dirs),
            lambda state, kind, after, most: list_tasks(
                there, state=state, kind=kind, after=after, limit=most
            ),
        )
