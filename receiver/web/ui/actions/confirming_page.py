"""What is to be done, said before it is done: one page for all actions, and their form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flask import Response

from common.errors import NotFoundError, UsageError
from receiver.web.ui.actions.edge_actions import EDGE_ACTIONS
from receiver.web.ui.actions.file_actions import FILE_ACTIONS
from receiver.web.ui.actions.node_actions import NODE_ACTIONS
from receiver.web.ui.actions.owner_actions import OWNER_ACTIONS
from receiver.web.ui.actions.task_actions import TASK_ACTIONS
from receiver.web.ui.actions.token_actions import TOKEN_ACTIONS
from receiver.web.ui.page_routes import PageRoutes

if TYPE_CHECKING:
    from receiver.web.ui.actions.page_action import Given, PageAction
    from receiver.web.ui.page_call import PageCall

__all__ = ["ROUTES"]

ROUTES = PageRoutes()
_ACTIONS: Final = {
    each.name: each
    for each in (
        *EDGE_ACTIONS,
        *OWNER_ACTIONS,
        *FILE_ACTIONS,
        *TASK_ACTIONS,
        *NODE_ACTIONS,
        *TOKEN_ACTIONS,
    )
}
_LONGEST: Final = 2000
_CHANGED: Final = "It has changed since you read it; nothing was done. Read it again:"
_OFFERED: Final = 500


@ROUTES.page("/ui/do/<action>", "Say what would be done")
def action_page(page: PageCall) -> Response:
    """Say what would be done."""
    page.must_operate()
    action = _action(page)
    given = {each: page.query(each) for each in action.fields}
    if action.asks and not given[action.asks]:
        return page.shown(
            "asking.html",
            action.title,
            action=action,
            given=given,
            edges=_offered(page) if action.offers_edges else (),
        )
    return _said(page, action, given)


@ROUTES.form("/ui/do/<action>", "Do what was said")
def do_action(page: PageCall) -> Response:
    """Do what was said."""
    page.must_operate()
    action = _action(page)
    form = page.call.request.form
    given = {each: form.get(each, "") for each in action.fields}
    for name, text in given.items():
        if len(text) > _LONGEST:
            raise UsageError(f"{name}: longer than {_LONGEST} characters")
    plan = action.plan(page, given)
    if form.get("seen") != plan.mark:
        return _said(page, action, given, note=_CHANGED, code=409)
    page.call.audited({name: text[:200] for name, text in given.items()}, action=action.name)
    done = action.act(page, given)
    page.session.say(done)
    return Response(status=303, headers={"Location": plan.back})


def _action(page: PageCall) -> PageAction:
    found = _ACTIONS.get(page.call.arguments["action"])
    if found is None:
        raise NotFoundError("there is no such action here")
    return found


def _said(
    page: PageCall, action: PageAction, given: Given, *, note: str = "", code: int = 200
) -> Response:
    plan = action.plan(page, given)
    return page.shown(
        "confirming.html",
        action.title,
        code=code,
        action=action,
        given=given,
        plan=plan,
        note=note,
        allowed=page.may_operate,
    )


def _offered(page: PageCall) -> list[str]:
    """Labels that a browser may complete."""
    with page.engine.reading() as state:
        labels = sorted({row.label for row in state.senders.values() if row.label})
    return labels[:_OFFERED]
