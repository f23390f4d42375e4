"""What can be done about background tasks, and about the clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from common.errors import ConflictError
from receiver.metadata.query.background_tasks import place_text
from receiver.operator.asked_work.background_tasks import cancel_task, retry_task, task_row
from receiver.web.ui.actions.page_action import Confirmation, Given, PageAction
from receiver.web.ui.drawing.page_templates import link
from receiver.web.ui.drawing.page_texts import stamp

if TYPE_CHECKING:
    from receiver.web.ui.page_call import PageCall

__all__ = ["TASK_ACTIONS"]

_ENDED: Final = ("done", "failed", "cancelled")
_TRIED_AGAIN: Final = ("failed", "cancelled")


def _standing(page: PageCall, task: str) -> tuple[str, str]:
    """A task in a sentence, and its state."""
    row = task_row(page.engine, task)
    places = ", ".join(map(place_text, row.scope))
    since = stamp(page.engine.times.seconds(row.changed))
    state = str(row.state)
    reason = f" ({row.reason})" if row.reason else ""
    return f"Task {row.id}, {row.kind} of {places}, is {state} since {since}{reason}.", state


def _plan_again(page: PageCall, given: Given) -> Confirmation:
    said, state = _standing(page, given["task"])
    if state not in _TRIED_AGAIN:
        raise ConflictError(f"task {given['task']} is {state}, neither failed nor cancelled")
    return Confirmation((said, "It waits again, and is done by whoever takes it."), link("tasks"))


def _again(page: PageCall, given: Given) -> str:
    there = page.running
    retry_task(there.engine, there.work, given["task"])
    return f"Task {given['task']} waits again."


def _plan_cancel(page: PageCall, given: Given) -> Confirmation:
    said, state = _standing(page, given["task"])
    if state in _ENDED:
        raise ConflictError(f"task {given['task']} is {state}: it has ended")
    return Confirmation(
        (said, "Nobody does it; whoever does it now commits no more of it."), link("tasks")
    )


def _cancel(page: PageCall, given: Given) -> str:
    there = page.running
    by = f"token {page.who.token_id}" if page.who.token_id else "an operator"
    cancel_task(there.engine, there.work, given["task"], f"by {by}")
    return f"Task {given['task']} is cancelled."


def _plan_confirm(page: PageCall, given: Given) -> Confirmation:
    doubt = page.running.engine.clock.doubt()
    if doubt is None:
        raise ConflictError("the clock is not in doubt")
    return Confirmation(
        (
            f"The clock of the receiver's machine is in doubt: {doubt.text}",
            "If you confirm that it is right, timestamps of commits follow it from now on, and "
            "what is past its TTL by it is deleted.",
        ),
        link("engine"),
    )


def _confirm(page: PageCall, given: Given) -> str:
    doubted = page.running.engine.confirm_clock()
    return "The clock is confirmed." if doubted else "The clock was not in doubt any more."


TASK_ACTIONS: Final = (
    PageAction("try-again", "Try the task again", ("task",), _plan_again, _again),
    PageAction("cancel", "Cancel the task", ("task",), _plan_cancel, _cancel),
    PageAction("confirm-clock", "Confirm the clock", (), _plan_confirm, _confirm, loses=True),
)
