"""The places that files lie at: storage nodes and data directories; and one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from receiver.operator.places.node_lists import show_node
from receiver.operator.places.node_search import NODE_ORDERS, node_found, search_nodes
from receiver.operator.places.remote_nodes import show_remote_node, unknown_tablets
from receiver.web.ui.page_routes import PageRoutes

if TYPE_CHECKING:
    from flask import Response

    from receiver.web.ui.page_call import PageCall

__all__ = ["ROUTES"]

ROUTES = PageRoutes()
_UNKNOWN: Final = 20
_ORDERS: Final = (
    ("name", "Node"),
    ("state", "State"),
    ("heard", "Heard"),
    ("tablets", "Tablets"),
    ("files", "Files"),
    ("bytes", "Size"),
    ("free", "Free"),
)
"""What nodes are sorted by, as the columns are called."""


@ROUTES.page("/ui/nodes", "Storage nodes and data directories")
def nodes_page(page: PageCall) -> Response:
    """Storage nodes and data directories."""
    asked = page.list_asked(NODE_ORDERS)
    found = search_nodes(page.there, asked)
    return page.shown("nodes.html", "Storage nodes", found=found, asked=asked, orders=_ORDERS)


@ROUTES.page("/ui/node/<node>", "One storage node or data directory")
def node_page(page: PageCall) -> Response:
    """One storage node or data directory."""
    view = show_node(page.there, page.call.arguments["node"])
    is_remote = view.kind == "remote"
    return page.shown(
        "node.html",
        f"{'Node' if is_remote else 'Directory'} {view.name}",
        found=node_found(page.there, view),
        node=view,
        process=show_remote_node(page.there, view.uuid) if is_remote else None,
        unknown=unknown_tablets(page.there, view.uuid, limit=_UNKNOWN).tablets if is_remote else (),
    )
