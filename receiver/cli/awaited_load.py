"""The wait for a load at the centre, by `load` and by SQL: how far it is, why it waits, its end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import click

from common.console.progress_bar import WorkProgress
from common.console.terminal import printable
from common.errors import EXIT_NOT_LOADED, UnreachableError
from receiver.cli.awaited_answer import awaited
from receiver.operator.client import NotRunningError, OperatorClient
from receiver.operator.views.load_wire import CentreLoadAnswer, CentreLoadRequest

__all__ = ["await_load", "exit_code_of"]

_HERE: Final = ("loaded", "already", "expired")
"""Results of files that nobody needs to keep for this receiver."""


def await_load(
    server: OperatorClient, task: str, request: CentreLoadRequest | None, progress: WorkProgress
) -> CentreLoadAnswer:
    """Have files loaded, and wait for the end.

    Args:
        server: that loads.
        task: id of the load.
        request: that begins it; None: it was begun before.
        progress: shows how far it is, and has no row of it in the end.

    Raises:
        TsferryError: as the server refused it.
    """
    said: list[str | None] = [None]

    def heard(answer: CentreLoadAnswer) -> None:
        if answer.trouble != said[-1]:
            said.append(answer.trouble)
            progress.clear()
            text = f"it has to wait: {answer.trouble}" if answer.trouble else "it goes on"
            click.echo(printable(text), err=True)

    with _told_what_remains(task):
        progress.say("the receiver loads")
        return awaited(server, "/v1/loads", task, request, CentreLoadAnswer, progress, heard)


def exit_code_of(results: Iterable[str]) -> int:
    """What a command ends with, by what became of each file: 0 only if all are here."""
    return 0 if all(each in _HERE for each in results) else EXIT_NOT_LOADED


@contextmanager
def _told_what_remains(task: str) -> Iterator[None]:
    """Say how to go on where the wait for a load ends before the load."""
    try:
        yield
    except (KeyboardInterrupt, UnreachableError) as error:
        if isinstance(error, NotRunningError):
            text = (
                f"load {task}: if it was handed over, the receiver goes on with it at its next "
                f"start, else nothing of it is loaded: tsferry-receiver load --wait {task} says"
            )
        else:
            text = (
                f"load {task} goes on at the receiver: tsferry-receiver load --wait {task} waits "
                f"for its end, tsferry-receiver tasks cancel {task} ends it"
            )
        click.echo(text, err=True)
        raise
