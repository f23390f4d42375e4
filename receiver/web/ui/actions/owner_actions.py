"""What can be done about the owner of devices: freed, or given to another edge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from common.errors import NotFoundError
from receiver.operator.edges.owners import owned_by_pattern, set_owner
from receiver.web.ui.actions.edge_actions import named_edge
from receiver.web.ui.actions.page_action import Confirmation, Given, PageAction
from receiver.web.ui.drawing.page_templates import link
from receiver.web.ui.drawing.page_texts import plural, stamp

if TYPE_CHECKING:
    from receiver.web.ui.page_call import PageCall

__all__ = ["OWNER_ACTIONS"]

_NAMED: Final = 20


def _standing(page: PageCall, pattern: str) -> list[str]:
    """How the devices stand that are meant, in sentences."""
    with page.engine.reading() as state:
        every = dict(state.owners)
    owners = {each: every[each] for each in owned_by_pattern(every, pattern)}
    said = []
    if list(owners) != [pattern]:
        said.append(f"{pattern} means {plural(len(owners), 'device')}.")
    for device, row in list(owners.items())[:_NAMED]:
        since = stamp(page.engine.times.seconds(row.since))
        said.append(f"{device} belongs to {named_edge(page, row.sender)} since {since}.")
    if len(owners) > _NAMED:
        said.append(f"{plural(len(owners) - _NAMED, 'more device')} not named here.")
    return said


def _plan_release(page: PageCall, given: Given) -> Confirmation:
    device = given["device"]
    return Confirmation(
        (
            *_standing(page, device),
            "It will belong to nobody: the edge whose file with it is loaded first gets it.",
            "What was loaded stays visible.",
        ),
        link("owners", device=device),
    )


def _release(page: PageCall, given: Given) -> str:
    moved = set_owner(page.running.engine, page.who, given["device"], None)
    return f"{plural(moved.devices, 'device')} free: {given['device']}."


def _plan_transfer(page: PageCall, given: Given) -> Confirmation:
    device, sender = given["device"], page.edge_named(given["sender"])
    try:
        stands = _standing(page, device)
    except NotFoundError:
        raise NotFoundError(
            f"nobody owns the device {device[:200]!a}: whoever sends it first gets it"
        ) from None
    return Confirmation(
        (
            *stands,
            f"It will take data from {named_edge(page, sender)}, and from nobody else.",
            "What was loaded stays visible. Files of an edge that lost all of their devices end by "
            "it: they are retired, and stand below what the new owner brings.",
        ),
        link("owners", device=device),
    )


def _transfer(page: PageCall, given: Given) -> str:
    sender = page.edge_named(given["sender"])
    moved = set_owner(page.running.engine, page.who, given["device"], sender)
    return (
        f"{plural(moved.devices, 'device')} transferred to {page.label_of(sender)}, "
        f"{plural(moved.retired, 'file')} ended."
    )


OWNER_ACTIONS: Final = (
    PageAction("release", "Release the device", ("device",), _plan_release, _release),
    PageAction(
        "transfer",
        "Transfer the device",
        ("device", "sender"),
        _plan_transfer,
        _transfer,
        asks="sender",
        question="The edge that it belongs to from now on, by label or uuid",
    ),
)
