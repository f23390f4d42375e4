"""What can be done about an edge: accepted, replaced, removed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from common.config.units import format_duration
from common.console.terminal import size_text
from common.errors import NotFoundError, UsageError
from receiver.operator.edges.lateness import NEVER_LATE, silence_of
from receiver.operator.edges.owners import adopt_sender
from receiver.operator.edges.senders import accept_sender, remove_sender, set_lateness
from receiver.web.ui.actions.page_action import Confirmation, Given, PageAction
from receiver.web.ui.drawing.page_templates import link
from receiver.web.ui.drawing.page_texts import plural

if TYPE_CHECKING:
    from receiver.web.ui.page_call import PageCall

__all__ = ["EDGE_ACTIONS", "named_edge"]


def named_edge(page: PageCall, sender: str) -> str:
    """An edge in a sentence: its label and uuid.

    Raises:
        NotFoundError: there is none.
    """
    with page.engine.reading() as state:
        row = state.senders.get(sender)
    if row is None:
        raise NotFoundError(f"sender {sender[:60]!a} is not known here")
    return f"{row.label} ({sender})" if row.label else sender


def _devices(page: PageCall, sender: str) -> int:
    with page.engine.reading() as state:
        return sum(row.sender == sender for row in state.owners.values())


def _plan_accept(page: PageCall, given: Given) -> Confirmation:
    sender = given["sender"]
    return Confirmation(
        (
            f"The next machine that comes as {named_edge(page, sender)} goes on, whatever epoch it "
            "has.",
            "With its first look that was whole its list begins anew: what it has stands above all "
            "that it does not have, which is retired, and stays visible.",
            "A real clone is not accepted but given a uuid of its own, on that machine: "
            "tsferry-sender init --new-identity.",
        ),
        link("edge", sender),
    )


def _accept(page: PageCall, given: Given) -> str:
    accept_sender(page.running.engine, given["sender"])
    return f"The next machine that comes as {given['sender']} is accepted."


def _plan_adopt(page: PageCall, given: Given) -> Confirmation:
    old, new = given["sender"], page.edge_named(given["by"])
    if old == new:
        raise UsageError(f"sender {old} cannot adopt itself")
    return Confirmation(
        (
            f"{named_edge(page, new)} goes on in the place of {named_edge(page, old)}.",
            f"It gets all devices of that edge: {plural(_devices(page, old), 'device')}.",
            "All files of that edge end: they are retired, stay visible, and stand below what the "
            "new one brings.",
        ),
        link("edge", old),
    )


def _adopt(page: PageCall, given: Given) -> str:
    old, new = given["sender"], page.edge_named(given["by"])
    moved = adopt_sender(page.running.engine, page.who, old, new)
    return (
        f"{page.label_of(new)} has {plural(moved.devices, 'device')} of {page.label_of(old)}; "
        f"{plural(moved.retired, 'file')} ended."
    )


def _plan_lateness(page: PageCall, given: Given) -> Confirmation:
    sender, silence = given["sender"], silence_of(given["late_after"].strip())
    if silence is None:
        what = "It is late as all edges are: after the silence that senders.late_after says."
    elif silence == NEVER_LATE:
        what = "It is never late, however long it is silent."
    else:
        what = f"It is late when it is silent for longer than {format_duration(silence)}."
    return Confirmation(
        (f"What is expected of {named_edge(page, sender)} changes.", what), link("edge", sender)
    )


def _set_lateness(page: PageCall, given: Given) -> str:
    set_lateness(page.running.engine, given["sender"], silence_of(given["late_after"].strip()))
    return f"{page.label_of(given['sender'])} is late after: {given['late_after'].strip()}."


def _plan_remove(page: PageCall, given: Given) -> Confirmation:
    sender = given["sender"]
    name = named_edge(page, sender)
    with page.engine.reading() as state:
        files, size = state.file_table.totals(sender)
        refused = sum(row.sender == sender for row in state.quarantine.values())
        tokens = sum(
            each.sender == sender or each.owners == (sender,) for each in state.tokens.values()
        )
    return Confirmation(
        (
            f"{name} comes no more, until it is accepted again.",
            f"Its tokens are revoked: {plural(tokens, 'token')}.",
            f"Its devices belong to nobody: {plural(_devices(page, sender), 'device')}.",
            f"What was refused of it is dropped, with the bytes kept of it: "
            f"{plural(refused, 'file')}.",
            f"What it brought stays visible, as retired files: {plural(files, 'file')}, "
            f"{size_text(size)}.",
        ),
        link("edge", sender),
    )


def _remove(page: PageCall, given: Given) -> str:
    done = remove_sender(page.running, page.who, given["sender"])
    return (
        f"{given['sender']} is removed: {plural(done.tokens, 'token')}, "
        f"{plural(done.devices, 'device')}; {plural(done.retired, 'file')} ended, "
        f"{plural(done.quarantined, 'refused one')} dropped."
    )


EDGE_ACTIONS: Final = (
    PageAction("accept", "Accept the next machine", ("sender",), _plan_accept, _accept),
    PageAction(
        "adopt",
        "Replace by another edge",
        ("sender", "by"),
        _plan_adopt,
        _adopt,
        asks="by",
        question="The edge that goes on in its place, by label or uuid",
    ),
    PageAction(
        "lateness",
        "Say when it is late",
        ("sender", "late_after"),
        _plan_lateness,
        _set_lateness,
        asks="late_after",
        question='Silence after which it is late: 2d, 90m, "never", or "default"',
    ),
    PageAction("remove", "Remove the edge", ("sender",), _plan_remove, _remove, loses=True),
)
