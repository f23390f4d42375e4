"""Calls about the tablets of a node: the master's orders, and bytes for whom it sends here."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from flask import Response

from common import wire
from common.errors import ForbiddenError, UsageError
from common.text_numbers import whole_number
from receiver.placement.node_orders import DROP_TABLETS, KEPT_FILES, MAKE_TABLETS, PROVE_FILE
from receiver.storage.reading.copy_reads import CONTENT_OF_NODE, DOUBT_COPY
from receiver.storage.stores.object_content import FileContent
from receiver.storagenode.node_web.node_calls import NodeCall, NodeCallRole, NodeRoutes
from receiver.tablet_copies.copies_wire import CopyOrders, DropOrders, KeptFiles, ProofAsked
from receiver.tablet_copies.held_proofs import give_proof
from receiver.tablet_copies.read_tickets import READ_TICKET

if TYPE_CHECKING:
    from receiver.tablet_copies.tablet_replica import TabletReplica

__all__ = ["TABLET_ROUTES", "range_of"]

TABLET_ROUTES = NodeRoutes()
_BYTES: Final = "application/octet-stream"
_MOST: Final = 8 << 20
_ORDERS: Final = 1 << 20
"""Bytes of some hundred orders, with room to spare."""
_KEPT: Final = 500
"""Files of a page."""


@TABLET_ROUTES.call("POST", MAKE_TABLETS, NodeCallRole.MASTER, most=_ORDERS)
def make_tablets(call: NodeCall) -> Response:
    """Have replicas."""
    said = wire.decode(call.request.get_data(), CopyOrders, "request")
    call.node.copies.make(said.tablets, said.master)
    call.node.pulls.wake()
    return Response(status=204)


@TABLET_ROUTES.call("POST", DROP_TABLETS, NodeCallRole.MASTER, most=_ORDERS)
def drop_tablets(call: NodeCall) -> Response:
    """Have no such replicas any more."""
    said = wire.decode(call.request.get_data(), DropOrders, "request")
    call.node.copies.drop(said.tablets, said.master)
    return Response(status=204)


@TABLET_ROUTES.call("POST", PROVE_FILE, NodeCallRole.MASTER)
def prove_file(call: NodeCall) -> Response:
    """Prove that bytes of a file are here, as they are on the disk now."""
    asked = wire.decode(call.request.get_data(), ProofAsked, "request")
    given = give_proof(call.node.copies, asked, call.node.home.start.boot)
    return Response(wire.encode(given), 200, mimetype="application/json")


@TABLET_ROUTES.call("GET", KEPT_FILES, NodeCallRole.MASTER)
def kept_files(call: NodeCall) -> Response:
    """What is here of a tablet, a page by physical name."""
    replica = call.node.copies.replica(call.request.args.get("tablet", ""))
    after = call.request.args.get("after", "")
    files, order = replica.files(), replica.order
    behind = sorted(each for each in files if each > after)
    some = behind[:_KEPT]
    page = KeptFiles(
        table="" if order is None else order.table,
        attributes=replica.attributes,
        files=tuple(files[each] for each in some),
        next=some[-1] if len(behind) > len(some) else None,
    )
    return Response(wire.encode(page), 200, mimetype="application/json")


@TABLET_ROUTES.call("GET", CONTENT_OF_NODE, NodeCallRole.TICKET)
def node_content(call: NodeCall) -> Response:
    """Bytes of a file, from `begin` on, `length` of them or fewer."""
    replica, physical = _let_in(call)
    begin, length = range_of(call)
    fd, file = replica.open_file(physical)
    try:
        if not begin < file.size or not length:
            raise UsageError(f"begin: no byte of {file.size} is asked for")
        length = min(length, file.size - begin)
        content = FileContent(fd, file.size, file.md5).read(begin, length)
    finally:
        os.close(fd)
    return Response(content, 200, {"ETag": f'"{file.md5}"'}, mimetype=_BYTES)


@TABLET_ROUTES.call("POST", DOUBT_COPY, NodeCallRole.TICKET)
def doubt_copy(call: NodeCall) -> Response:
    """Somebody has got other bytes of a file: read it, and go by what the disk gives."""
    replica, physical = _let_in(call)
    call.node.scrub.doubt(replica.tablet, physical)
    return Response(status=204)


def _let_in(call: NodeCall) -> tuple[TabletReplica, str]:
    """The replica and the file that a ticket is for.

    Raises:
        ForbiddenError: there is no ticket, or it is not for this.
        NotFoundError: the tablet is not here.
    """
    tablet, physical = call.request.args.get("tablet", ""), call.request.args.get("path", "")
    ticket = call.request.headers.get(READ_TICKET)
    if ticket is None:
        raise ForbiddenError(f"the header {READ_TICKET} is missing: the master gives tickets")
    call.node.tickets.check(ticket, tablet)
    return call.node.copies.replica(tablet), physical


def range_of(call: NodeCall) -> tuple[int, int]:
    """`begin` and `length` of a call, the latter cut to what is given at once.

    Raises:
        UsageError: they are no numbers of bytes.
    """
    return _number(call, "begin"), min(_number(call, "length"), _MOST)


def _number(call: NodeCall, name: str) -> int:
    number = whole_number(call.request.args.get(name, ""))
    if number is None:
        raise UsageError(f"{name}: expected a number of bytes")
    return number
