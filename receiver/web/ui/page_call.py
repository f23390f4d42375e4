"""One request of a person who is logged in, as the handler of a page sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from flask import Response

import common
from common.errors import ForbiddenError, UsageError
from receiver.metadata.model.records import OPERATOR
from receiver.operator.list_asked import ListAsked
from receiver.operator.named_senders import sender_named
from receiver.web.ui.drawing.page_templates import link, rendered

if TYPE_CHECKING:
    from collections.abc import Callable

    from receiver.metadata.engine import Engine
    from receiver.operator.directories import ReceiverDirectories, RunningReceiver
    from receiver.principal import Principal
    from receiver.web.call import Call
    from receiver.web.ui.page_sessions import PageSession

__all__ = ["NAVIGATION", "PageCall", "moved_to"]

NAVIGATION: Final = (
    ("", "Fleet"),
    ("files", "Files"),
    ("groups", "Storage groups"),
    ("owners", "Owners and conflicts"),
    ("quarantine", "Quarantine"),
    ("deletes", "Held deletions"),
    ("retired", "Retired"),
    ("lost", "Lost"),
    ("tasks", "Tasks"),
    ("history", "History"),
    ("verification", "Verification"),
    ("nodes", "Storage nodes"),
    ("tokens", "Tokens"),
    ("engine", "Engine and disks"),
)
"""First segments of the pages below `/ui/`, and their names."""
_LONGEST: Final = 1500
_SIZES: Final = ("50", "100", "200")
"""Rows of a page that can be asked for, the usual number first."""


@dataclass(frozen=True)
class PageCall:
    """A request with its session.

    Attributes:
        call: as other handlers see it.
        who: whose token the session was begun with.
        session: of the browser.
    """

    call: Call
    who: Principal
    session: PageSession

    @property
    def there(self) -> ReceiverDirectories:
        """The receiver, or a node that follows one, to be looked at."""
        return self.call.site.node.operator

    @property
    def engine(self) -> Engine:
        """The metadata engine."""
        return self.call.site.node.engine

    @property
    def running(self) -> RunningReceiver:
        """The receiver, to be changed.

        Raises:
            ForbiddenError: whoever asks may only look.
            NotTheWriterError: this is a node that follows one.
        """
        self.must_operate()
        return self.call.node.operator

    @property
    def may_operate(self) -> bool:
        """Whether buttons are shown that change something."""
        return self.who.role == OPERATOR and self.call.site.node.not_the_writer() is None

    def may_see(self, segment: str) -> bool:
        """Whether a page is in the navigation: whoever may only look sees no tokens."""
        return segment != "tokens" or self.who.role == OPERATOR

    def must_operate(self) -> None:
        """Refuse whoever may only look.

        Raises:
            ForbiddenError: it is a reader.
        """
        if self.who.role != OPERATOR:
            raise ForbiddenError(f"a {self.who.role} token may look, and change nothing")

    # -- what templates ask --------------------------------------------------------------------

    @property
    def clock(self) -> Callable[[], float]:
        """Seconds since the epoch."""
        return self.call.site.node.clock

    @property
    def time_unit(self) -> str:
        """Of the timestamps in the data."""
        return self.call.site.config.time_unit

    @property
    def version(self) -> str:
        """Of the program."""
        return common.__version__

    @property
    def path(self) -> str:
        """Of the request."""
        return self.call.request.path

    @property
    def here(self) -> str:
        """Path and query of the request, to come back to."""
        request = self.call.request
        query = request.query_string.decode("latin-1")
        return f"{request.path}?{query}" if query else request.path

    @property
    def section(self) -> str:
        """First segment below `/ui/`."""
        return self.path.split("/")[2]

    # -- what was asked for --------------------------------------------------------------------

    def query(self, name: str) -> str:
        """A member of the query; empty if it has none.

        Raises:
            UsageError: it comes twice, or is longer than any name.
        """
        text = self.call.query(name) or ""
        if len(text) > _LONGEST:
            raise UsageError(f"{name}: longer than {_LONGEST} characters")
        return text

    def place(self, name: str) -> int:
        """A whole number of the query, 0 if it has none."""
        return self.call.number(name, "a whole number") or 0

    def chosen(self, name: str, among: tuple[str, ...]) -> str:
        """A member of the query that is one of some words; the first if it has none.

        Raises:
            UsageError: it is another.
        """
        text = self.query(name) or among[0]
        if text not in among:
            raise UsageError(f"{name}: expected one of {', '.join(among)}")
        return text

    def list_asked(self, orders: tuple[str, ...]) -> ListAsked:
        """The page of a list that has these orders, as `ask_list` of the templates asks for it.

        Raises:
            UsageError: a member is none of those that there are.
        """
        return ListAsked(
            search=self.query("q"),
            order=self.chosen("sort", orders),
            descending=self.query("down") == "1",
            troubled=self.query("only") == "trouble",
            first=self.place("from"),
            count=int(self.chosen("count", _SIZES)),
        )

    # -- answers -------------------------------------------------------------------------------

    def shown(self, template: str, title: str, *, code: int = 200, **values: Any) -> Response:
        """A page.

        Args:
            template: its file.
            title: of the page.
            code: HTTP status of the answer.
            values: for the template.
        """
        given = {"page": self, "title": title, "navigation": NAVIGATION, **values}
        given["messages"] = self.session.said()
        return Response(rendered(template, given), code, mimetype="text/html")

    def label_of(self, sender: str) -> str:
        """What an edge calls itself, or the beginning of its uuid."""
        with self.engine.reading() as state:
            row = state.senders.get(sender)
        return (row.label if row is not None else "") or sender[:8]

    def edge_named(self, text: str) -> str:
        """The uuid of an edge that a person named: uuid, the beginning of one, or label.

        Raises:
            NotFoundError: there is none.
            UsageError: it is the name of several.
        """
        with self.engine.reading() as state:
            senders = ((row.uuid, row.label) for row in state.senders.values())
            return sender_named(senders, text.strip())


def moved_to(*segments: str, **query: Any) -> Response:
    """An answer that sends the browser to another page, by GET."""
    return Response(status=303, headers={"Location": link(*segments, **query)})
