"""What can be done about storage nodes and data directories."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from common.console.terminal import size_text
from common.errors import ConflictError
from receiver.operator.places.forgetting_nodes import forget_node, node_to_forget
from receiver.operator.places.node_lists import (
    drain_node,
    node_of,
    node_to_drain,
    show_node,
    undrain_node,
)
from receiver.operator.places.node_losses import lose_node
from receiver.operator.places.remote_nodes import accept_node, declare_node_found
from receiver.operator.views.node_views import LossRequest
from receiver.web.ui.actions.page_action import Confirmation, Given, PageAction
from receiver.web.ui.drawing.page_templates import link
from receiver.web.ui.drawing.page_texts import plural

if TYPE_CHECKING:
    from receiver.metadata.state.tables.place_tables.storage_nodes import StorageNodeRow
    from receiver.operator.views.node_views import LossView
    from receiver.web.ui.page_call import PageCall

__all__ = ["NODE_ACTIONS"]


def _named(row: StorageNodeRow) -> str:
    kind = "data directory" if row.kind == "directory" else "storage node"
    return f"the {kind} {row.name} ({row.uuid})"


def _back(row: StorageNodeRow) -> str:
    return link("node", row.uuid)


# -- drain -----------------------------------------------------------------------------------------


def _plan_drain(page: PageCall, given: Given) -> Confirmation:
    row = node_to_drain(page.there, given["node"])
    if row.draining:
        raise ConflictError(f"{row.name} is drained already")
    view = show_node(page.there, row.uuid)
    if row.kind == "directory":
        what = "What is there moves to other data directories; readers see all of it meanwhile."
    else:
        what = "It keeps each tablet until another node has it."
    return Confirmation(
        (
            f"Nothing new comes to {_named(row)}.",
            f"It has {plural(view.files, 'file')}, {size_text(view.bytes)}.",
            what,
            "It goes on over starts of the server, until it is said that files come again.",
        ),
        _back(row),
    )


def _drain(page: PageCall, given: Given) -> str:
    return f"{drain_node(page.running, given['node']).name} is drained."


def _plan_undrain(page: PageCall, given: Given) -> Confirmation:
    row = node_of(page.there, given["node"])
    if not row.draining:
        raise ConflictError(f"{row.name} is not drained")
    return Confirmation(
        (f"Files come to {_named(row)} again.", "What was moved stays where it is."), _back(row)
    )


def _undrain(page: PageCall, given: Given) -> str:
    return f"Files come to {undrain_node(page.running, given['node']).name} again."


# -- lost ------------------------------------------------------------------------------------------


def _preview(page: PageCall, given: Given) -> LossView:
    return lose_node(page.running, given["node"], LossRequest(replace=given.get("path")))


def _numbers(view: LossView) -> list[str]:
    """What is lost with a directory, as `nodes lost` says it; first what is gone for good."""
    files = "file"
    lines = [
        f"Gone for good: {plural(view.gone, files)}, {size_text(view.gone_bytes)}. Their edges "
        "have them no more.",
        f"Asked for again at their edges: {plural(view.wanted, files)}, "
        f"{size_text(view.wanted_bytes)}.",
    ]
    for count, text in (
        (view.copied, "at storage nodes, from where they come back first"),
        (
            view.perhaps,
            "perhaps at storage nodes that are silent or have not told: those are asked "
            "first, and while one is silent nothing is called lost",
        ),
        (view.stored, "in the object store or at storage nodes, and read there"),
        (view.elsewhere, "in another directory"),
        (view.superseded, "left out anyway, for others give the points"),
        (view.kept, "in quarantine, whose bytes are gone"),
        (view.alone, "in no data directory, that no other storage node is known to have"),
    ):
        if count:
            lines.append(f"{plural(count, files)} {text}.")
    if view.merged:
        lines.append(f"{plural(view.merged, 'merge')} end: what they were made of is read again.")
    if view.first_gone:
        more = view.gone - len(view.first_gone)
        lines.append(
            f"Gone are: {', '.join(view.first_gone)}{f' and {more} more' if more > 0 else ''}."
        )
    return lines


def _plan_lose(page: PageCall, given: Given) -> Confirmation:
    row = node_of(page.there, given["node"])
    view = _preview(page, given)
    if row.kind == "directory":
        says = [f"The disk of {_named(row)} does not come back.", *_numbers(view)]
    else:
        says = [
            f"What lies at {_named(row)} is gone for good.",
            "No file lies there alone by what the catalogue knows: its tablets are placed at other "
            "nodes, and come there from where they are.",
            "Should it come back, it is told so, and serves nothing until it is said that it is "
            "there after all.",
        ]
    return Confirmation(tuple(says), _back(row))


def _plan_replace(page: PageCall, given: Given) -> Confirmation:
    row = node_of(page.there, given["node"])
    view = _preview(page, given)
    return Confirmation(
        (
            f"The disk of {_named(row)} does not come back.",
            f"{view.replaced} comes in its place: it is made ready now, and used from the next "
            "start of the server on.",
            *_numbers(view),
        ),
        _back(row),
    )


def _lose(page: PageCall, given: Given) -> str:
    request = LossRequest(confirm=True, replace=given.get("path"))
    view = lose_node(page.running, given["node"], request)
    text = f"{view.name} is lost: {plural(view.wanted, 'file')} asked for again, "
    text += f"{plural(view.gone, 'file')} gone."
    if view.replaced is not None:
        text += f" {view.replaced} is used from the next start on: start the server anew."
    return text


# -- forgotten, found, accepted --------------------------------------------------------------------


def _plan_forget(page: PageCall, given: Given) -> Confirmation:
    row = node_to_forget(page.there, given["node"])
    if row.kind == "directory":
        how = "is lost" if row.lost else "has nothing that is nowhere else"
        what = f"It {how}, and is out of the configuration."
    else:
        what = "It is silent. Should it start again, it registers as a new one."
    return Confirmation((f"{_named(row).capitalize()} is listed no more.", what), link("nodes"))


def _forget(page: PageCall, given: Given) -> str:
    name = node_of(page.there, given["node"]).name
    forget_node(page.running, given["node"])
    return f"{name} is forgotten."


def _plan_found(page: PageCall, given: Given) -> Confirmation:
    row = node_of(page.there, given["node"])
    if not row.lost:
        raise ConflictError(f"the node {row.uuid} is not lost")
    return Confirmation(
        (
            f"{_named(row).capitalize()} is there after all.",
            "It is heard again, and what it has and is placed there counts again.",
        ),
        _back(row),
    )


def _found(page: PageCall, given: Given) -> str:
    declare_node_found(page.running, given["node"])
    return "The node is there: it is heard again."


def _plan_accept(page: PageCall, given: Given) -> Confirmation:
    row = node_of(page.there, given["node"])
    if row.kind != "remote":
        raise ConflictError(f"{row.name} is a data directory, and starts with the server")
    return Confirmation(
        (
            f"The next start of {_named(row)} goes on, of whatever copy of its directory.",
            "That is for a node that was restored from a copy, and is refused as a clone. A real "
            "clone gets an empty directory of its own.",
        ),
        _back(row),
    )


def _accept(page: PageCall, given: Given) -> str:
    accept_node(page.running, given["node"])
    return "The next start of the node goes on."


NODE_ACTIONS: Final = (
    PageAction("drain-node", "Drain it", ("node",), _plan_drain, _drain),
    PageAction("undrain-node", "Have files come again", ("node",), _plan_undrain, _undrain),
    PageAction("lose-node", "It is lost", ("node",), _plan_lose, _lose, loses=True),
    PageAction(
        "replace-node",
        "It is lost, and replaced",
        ("node", "path"),
        _plan_replace,
        _lose,
        loses=True,
        asks="path",
        question="The empty directory of data_dirs that comes in its place",
    ),
    PageAction("forget-node", "Forget it", ("node",), _plan_forget, _forget, loses=True),
    PageAction("node-found", "It is there after all", ("node",), _plan_found, _found),
    PageAction("accept-node", "Accept its next start", ("node",), _plan_accept, _accept),
)
