"""The calls of storage nodes about their copies, and where readers find copies."""

from __future__ import annotations

import re
from typing import Final

from flask import Response

from common.errors import NotFoundError, ProtocolError, UsageError
from common.names import is_sender_uuid
from receiver.metadata.state.placed_files import placement_of
from receiver.operator.places.copies import bring_back, copies_view, mend_files, offered_view
from receiver.operator.places.rebalancing import rebalance_copies
from receiver.operator.views.copy_views import (
    BackView,
    CopiesView,
    MendRequest,
    OfferedView,
    RebalanceRequest,
    RebalanceView,
)
from receiver.tablet_copies.copies_wire import (
    CopyNews,
    CopyPage,
    FilePlaces,
    GoneAsked,
    GoneSaid,
    HeldCopies,
)
from receiver.web.call import Call, json_answer
from receiver.web.routes import EMPTY, AnswerRow, Body, Parameter, Role, Routes

__all__ = ["ROUTES"]

ROUTES = Routes()
_BYTES: Final = "application/octet-stream"
_DIGEST: Final = re.compile(r"[0-9a-f]{32}\Z")
_MOST: Final = 8 << 20
_NODE = Parameter("node", "query", {"type": "string"}, "uuid of the node that asks.", True)
_AFTER = Parameter("after", "query", {"type": "integer", "minimum": 0}, "A commit.", True)
_BEHIND = Parameter("after", "query", {"type": "string"}, "`next` of the page before.")
_HAS = Parameter("digest", "query", {"type": "string"}, "Of the list of what the node has.")
_SINCE = Parameter(
    "since",
    "query",
    {"type": "integer", "minimum": 1},
    "What the node has is complete as of this commit.",
)
_PATH = Parameter("path", "query", {"type": "string"}, "Physical, as the catalogue has it.", True)
_TABLET = Parameter("tablet", "query", {"type": "string"}, "That it is in there.", True)
_BEGIN = Parameter("begin", "query", {"type": "integer", "minimum": 0}, "The first byte.", True)
_LENGTH = Parameter(
    "length", "query", {"type": "integer", "minimum": 1}, "Bytes, 8 MiB at most.", True
)


@ROUTES.call(
    "GET",
    "/v1/copies",
    Role.NODE,
    "Tablets of a storage node that something happened to",
    AnswerRow(200, CopyNews),
    parameters=(_NODE, _AFTER),
)
def copy_news(call: Call) -> Response:
    """Tablets of a node that something happened to."""
    after = call.number("after", "a commit")
    return json_answer(call.node.copies.lists.news(_node(call), after or 0))


@ROUTES.call(
    "GET",
    "/v1/copies/<tablet>/files",
    Role.NODE,
    "Files of a tablet of a storage node, by physical name",
    AnswerRow(200, CopyPage),
    parameters=(_NODE, _BEHIND, _HAS, _SINCE),
)
def copy_files(call: Call) -> Response:
    """Files of a tablet."""
    digest = call.query("digest") or ""
    if digest and not _DIGEST.match(digest):
        raise UsageError("digest: expected 32 lower-case hex digits")
    page = call.node.copies.lists.page(
        _node(call),
        call.arguments["tablet"],
        call.query("after"),
        digest,
        call.number("since", "a commit") or 0,
    )
    return json_answer(page)


@ROUTES.call(
    "POST",
    "/v1/copies/<tablet>/gone",
    Role.NODE,
    "Which files of a replica may go that are on no list any more",
    AnswerRow(200, GoneSaid),
    takes=GoneAsked,
    body=Body.LARGE,
    parameters=(_NODE,),
)
def copies_gone(call: Call) -> Response:
    """Which files may go."""
    lists = call.node.copies.lists
    return json_answer(lists.gone(_node(call), call.arguments["tablet"], call.body(GoneAsked)))


@ROUTES.call(
    "POST",
    "/v1/copies/held",
    Role.NODE,
    "A storage node says which replicas are complete",
    EMPTY,
    takes=HeldCopies,
    body=Body.LARGE,
    parameters=(_NODE,),
)
def copies_held(call: Call) -> Response:
    """Which replicas are complete."""
    said = call.body(HeldCopies)
    if said.start.uuid != _node(call):
        raise ProtocolError("the body is of another node than the query")
    call.node.copies.held(said)
    return Response(status=204)


@ROUTES.call(
    "GET",
    "/v1/copies/content",
    Role.NODE,
    "Bytes of a file of a tablet of a storage node",
    AnswerRow(200, raw=_BYTES, meaning="those bytes, or the first of them"),
    parameters=(_NODE, _PATH, _BEGIN, _LENGTH),
)
def copied_content(call: Call) -> Response:
    """Bytes of a file that a node is to have."""
    physical, node = call.query("path") or "", _node(call)
    begin = call.number("begin", "a number of bytes")
    length = call.number("length", "a number of bytes")
    with call.node.engine.reading() as state:
        row = state.files.get(physical)
        placed = None if row is None else placement_of(state, physical)
        is_listed = row is not None and (row.visible or physical in state.released_table.rows)
    if row is None or placed is None or node not in placed[1].nodes or not is_listed:
        raise NotFoundError(f"{physical[:200]!a} is no file of a tablet of the node {node}")
    if begin is None or not length or begin >= row.size:
        raise UsageError(f"begin, length: expected bytes of {row.size}")
    length = min(length, _MOST, row.size - begin)
    return Response(call.node.content.read(row, begin, length), mimetype=_BYTES)


@ROUTES.call(
    "GET",
    "/v1/copies/where",
    Role.READER,
    "Storage nodes that give a loaded file, with tickets for it",
    AnswerRow(200, FilePlaces),
    parameters=(_PATH,),
)
def copies_where(call: Call) -> Response:
    """Nodes that give a file."""
    call.who.must_read()
    path = call.query("path")
    if path is None:
        raise UsageError("path: missing; expected the physical path of a file")
    copies = call.node.copies
    places, nodes = copies.places(path), bool(copies.nodes())
    return json_answer(FilePlaces(places=places, nodes=nodes, cache=copies.slots.place(path)))


@ROUTES.call(
    "GET",
    "/v1/copies/status",
    Role.OPERATOR,
    "How far the copies on storage nodes are",
    AnswerRow(200, CopiesView),
)
def copies_status(call: Call) -> Response:
    """How far the copies are."""
    return json_answer(copies_view(call.operator))


@ROUTES.call(
    "POST",
    "/v1/copies/back",
    Role.OPERATOR,
    "Bring back from storage nodes what no data directory has",
    AnswerRow(200, BackView),
)
def copies_back(call: Call) -> Response:
    """Bring back what no data directory has."""
    return json_answer(bring_back(call.operator))


@ROUTES.call(
    "POST",
    "/v1/copies/rebalance",
    Role.OPERATOR,
    "Have tablets go from storage nodes with much to those with little",
    AnswerRow(200, RebalanceView),
    takes=RebalanceRequest,
)
def copies_rebalance(call: Call) -> Response:
    """Have tablets go to other nodes."""
    return json_answer(rebalance_copies(call.operator, call.body(RebalanceRequest)))


@ROUTES.call(
    "POST",
    "/v1/copies/mend",
    Role.OPERATOR,
    "Bring back from storage nodes files that were found damaged or missing",
    AnswerRow(200, BackView),
    takes=MendRequest,
    body=Body.LARGE,
)
def copies_mend(call: Call) -> Response:
    """Have whole files in place of others."""
    return json_answer(mend_files(call.operator, call.body(MendRequest)))


@ROUTES.call(
    "GET",
    "/v1/copies/offered",
    Role.OPERATOR,
    "What storage nodes have and the catalogue has not",
    AnswerRow(200, OfferedView),
)
def copies_offered(call: Call) -> Response:
    """What nodes offer back."""
    return json_answer(offered_view(call.operator))


@ROUTES.call(
    "GET",
    "/v1/copies/offered/content",
    Role.OPERATOR,
    "Bytes of a file that a storage node has and the catalogue has not",
    AnswerRow(200, raw=_BYTES, meaning="those bytes, or the first of them"),
    parameters=(_NODE, _TABLET, _PATH, _BEGIN, _LENGTH),
)
def offered_content(call: Call) -> Response:
    """Bytes of an offered file."""
    begin = call.number("begin", "a number of bytes")
    length = call.number("length", "a number of bytes")
    names = {each: call.query(each) for each in ("node", "tablet", "path")}
    if begin is None or not length or None in names.values():
        raise UsageError("node, tablet, path, begin, length: expected all of them")
    found = call.node.copies.offers.content(
        names["node"] or "", names["tablet"] or "", names["path"] or "", begin, min(length, _MOST)
    )
    return Response(found, mimetype=_BYTES)


def _node(call: Call) -> str:
    """The node that asks.

    Raises:
        NotFoundError: there is no such node.
    """
    call.who.must_keep()
    uuid = call.query("node") or ""
    if not is_sender_uuid(uuid):  # of the same form
        raise UsageError("node: expected 32 lower-case hex digits")
    with call.node.engine.reading() as state:
        row = state.node_table.rows.get(uuid)
    if row is None or row.lost:
        raise NotFoundError(f"there is no node {uuid}, or it was declared lost")
    return uuid
