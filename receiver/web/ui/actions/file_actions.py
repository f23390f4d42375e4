"""What can be done about files: in quarantine, retired, lost, deleted; and held deletions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from common.console.terminal import size_text
from common.errors import ConflictError, Integrity, NotFoundError
from receiver.operator.edges.lost import acknowledge_lost, list_lost
from receiver.operator.stored.deletes import (
    allow_held_deletes,
    drop_held_deletes,
    list_held_deletes,
)
from receiver.operator.stored.files import undelete_files
from receiver.operator.stored.quarantine import drop_quarantined, list_quarantine, retry_quarantined
from receiver.operator.stored.retired import drop_retired, show_retired
from receiver.web.ui.actions.edge_actions import named_edge
from receiver.web.ui.actions.page_action import Confirmation, Given, PageAction
from receiver.web.ui.drawing.page_templates import link
from receiver.web.ui.drawing.page_texts import plural, stamp

if TYPE_CHECKING:
    from receiver.operator.views.file_views import HeldDeletesView, QuarantineView
    from receiver.web.ui.page_call import PageCall

__all__ = ["FILE_ACTIONS"]

_NAMED: Final = 20
_QUARANTINED: Final = ("sender", "path", "digest")


# -- quarantine ------------------------------------------------------------------------------------


def _entry(page: PageCall, given: Given) -> QuarantineView:
    path, digest = given["path"], given["digest"]
    for each in list_quarantine(page.engine, given["sender"]):
        if (each.path, each.digest) == (path, digest):
            return each
    raise NotFoundError(f"{path[:200]!a} with digest {digest[:200]!a} is not in quarantine")


def _told(page: PageCall, entry: QuarantineView) -> tuple[str, ...]:
    return (
        f"{entry.path} of {named_edge(page, entry.sender)}, {size_text(entry.size)}, is in "
        f"quarantine since {stamp(entry.since_at)}.",
        f"Why: {entry.reason}",
    )


def _plan_retry(page: PageCall, given: Given) -> Confirmation:
    entry = _entry(page, given)
    if entry.loaded:
        what = (
            "If its bytes are those that were loaded, it is visible again: that it is sound is "
            "your word."
        )
    elif entry.kept:
        what = (
            "The bytes that are kept are looked at again; if they are good now, the next round of "
            "the edge loads them."
        )
    else:
        what = "Its bytes are not here: the next round of the edge tries again."
    return Confirmation((*_told(page, entry), what), link("quarantine"))


def _retry(page: PageCall, given: Given) -> str:
    try:
        result = retry_quarantined(page.running, *(given[each] for each in _QUARANTINED))
    except Integrity as error:
        raise ConflictError(f"still refused: {error.message}") from error
    return f"{given['path']}: {result}."


def _plan_drop(page: PageCall, given: Given) -> Confirmation:
    entry = _entry(page, given)
    if entry.loaded:
        what = (
            "It is deleted here, and its bytes go with the kept history. If the edge has it still, "
            "it comes again."
        )
    elif entry.kept:
        what = (
            "It is forgotten here, with the bytes that are kept of it. If the edge has it still, "
            "it is offered again."
        )
    else:
        what = "It is forgotten here. If the edge has it still, it is offered again."
    return Confirmation((*_told(page, entry), what), link("quarantine"))


def _drop(page: PageCall, given: Given) -> str:
    drop_quarantined(page.running, *(given[each] for each in _QUARANTINED))
    return f"{given['path']}: dropped."


# -- deletions that are held -----------------------------------------------------------------------


def _held(page: PageCall, digest: str) -> HeldDeletesView:
    found = next((each for each in list_held_deletes(page.engine) if each.digest == digest), None)
    if found is None:
        raise NotFoundError(f"no list of deletes {digest[:60]!a} waits")
    return found


def _listed(page: PageCall, held: HeldDeletesView) -> tuple[str, ...]:
    paths = ", ".join(held.files[:_NAMED])
    more = len(held.files) - _NAMED
    return (
        f"{named_edge(page, held.sender)} tells of deletions in {held.group} since "
        f"{stamp(held.since_at)}: {plural(len(held.files), 'file')}, {size_text(held.bytes)}, "
        f"{plural(held.points, 'point')}.",
        f"Why they wait: {held.reason}",
        f"The files: {paths}{f' and {more} more' if more > 0 else ''}.",
    )


def _plan_allow(page: PageCall, given: Given) -> Confirmation:
    held = _held(page, given["digest"])
    if held.records:
        what = (
            "The points that the edge has deleted in these files are hidden from readers from now "
            "on."
        )
    else:
        what = (
            "The files are deleted when the edge tells once more that they are gone; those whose "
            "paths have other content by now are deleted at once."
        )
    return Confirmation((*_listed(page, held), what), link("deletes"))


def _allow(page: PageCall, given: Given) -> str:
    allow_held_deletes(page.running.engine, given["digest"])
    return "The list of deletes is let through."


def _plan_refuse(page: PageCall, given: Given) -> Confirmation:
    held = _held(page, given["digest"])
    if held.records:
        what = "The points stay visible for good, whatever the edge has deleted."
    else:
        what = "The files stay: they are retired when they are told as gone, and stay visible."
    return Confirmation((*_listed(page, held), what), link("deletes"))


def _refuse(page: PageCall, given: Given) -> str:
    drop_held_deletes(page.running.engine, given["digest"])
    return "What is on the list of deletes is kept."


# -- retired, lost, deleted ------------------------------------------------------------------------


def _plan_give_up(page: PageCall, given: Given) -> Confirmation:
    file = show_retired(page.there, given["physical"])
    if file.state == "superseded":
        unique = "Others give all of its points, as far as is proved."
    elif file.unreadable:
        unique = f"Nothing can be said of its points: {file.unreadable}"
    elif not file.judged:
        unique = "It is not proved that others give its points: they may exist nowhere else."
    else:
        unique = (
            f"{plural(file.unique_points, 'point')} of it exist nowhere else, in "
            f"{plural(file.unique_series, 'series', 'series')}."
        )
    says = [
        f"{file.path} of {named_edge(page, file.sender)} is given up, points and all: "
        f"{size_text(file.size)}, {plural(file.points, 'point')}.",
        f"It is {file.state} since {stamp(file.since_at)}; its edge has it no more.",
        unique,
    ]
    if file.merged:
        says.append(f"With it goes what it was made of: {plural(file.merged, 'file')}.")
    return Confirmation(tuple(says), link("retired", state=file.state))


def _give_up(page: PageCall, given: Given) -> str:
    drop_retired(page.running, given["physical"])
    return f"{given['physical']} is given up."


def _plan_acknowledge(page: PageCall, given: Given) -> Confirmation:
    sender, path = given["sender"], given["path"]
    files = [each for each in list_lost(page.engine, sender) if path in ("", each.path)]
    if not files:
        raise NotFoundError(f"nothing of sender {sender[:60]!a} is lost")
    named = ", ".join(each.path for each in files[:_NAMED])
    more = len(files) - _NAMED
    return Confirmation(
        (
            f"It is known that {plural(len(files), 'file')} of {named_edge(page, sender)} are "
            f"lost: {size_text(sum(each.size for each in files))}.",
            f"The files: {named}{f' and {more} more' if more > 0 else ''}.",
            "Nobody is told of them any more; nothing else changes.",
        ),
        link("lost"),
    )


def _acknowledge(page: PageCall, given: Given) -> str:
    paths = frozenset({given["path"]} - {""})
    done = acknowledge_lost(page.running.engine, given["sender"], paths)
    return f"{plural(len(done), 'lost file')} acknowledged."


def _plan_undelete(page: PageCall, given: Given) -> Confirmation:
    physical = given["physical"]
    with page.engine.reading() as state:
        row = state.files.get(physical)
    if row is None:
        raise NotFoundError(f"there is no file {physical[:200]!a}")
    if row.state != "deleted":
        raise ConflictError(f"{physical} is {row.state}, not deleted")
    return Confirmation(
        (
            f"{row.path} of {named_edge(page, row.sender)} is visible again, if its bytes still "
            f"stand: {size_text(row.size)}, {plural(row.points, 'point')}.",
            "It comes back as a retired file: its edge has it no more.",
        ),
        link("file", physical=physical),
    )


def _undelete(page: PageCall, given: Given) -> str:
    done = undelete_files(page.running, [given["physical"]])
    if done.failed:
        raise ConflictError(done.failed[0].reason)
    return f"{given['physical']} is visible again."


FILE_ACTIONS: Final = (
    PageAction("retry", "Look at the file again", _QUARANTINED, _plan_retry, _retry),
    PageAction("drop", "Drop the file", _QUARANTINED, _plan_drop, _drop, loses=True),
    PageAction("allow", "Let the deletions through", ("digest",), _plan_allow, _allow, loses=True),
    PageAction("keep", "Keep the files", ("digest",), _plan_refuse, _refuse),
    PageAction("give-up", "Give the file up", ("physical",), _plan_give_up, _give_up, loses=True),
    PageAction(
        "acknowledge",
        "Acknowledge the loss",
        ("sender", "path"),
        _plan_acknowledge,
        _acknowledge,
    ),
    PageAction("undelete", "Make the file visible again", ("physical",), _plan_undelete, _undelete),
)
