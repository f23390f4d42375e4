"""What can be done about tokens: they are revoked here, and made by the command.

A token made from a page would outlive the session: whoever comes by an open browser for a minute
would have it for good.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from common.errors import NotFoundError
from receiver.operator.edges.tokens import list_tokens, revoke_token
from receiver.web.ui.actions.page_action import Confirmation, Given, PageAction
from receiver.web.ui.drawing.page_templates import link
from receiver.web.ui.drawing.page_texts import stamp

if TYPE_CHECKING:
    from receiver.web.ui.page_call import PageCall

__all__ = ["TOKEN_ACTIONS"]


def _plan_revoke(page: PageCall, given: Given) -> Confirmation:
    token = given["token"]
    found = next((each for each in list_tokens(page.engine) if each.id == token), None)
    if found is None:
        raise NotFoundError(f"there is no token {token[:40]!a}")
    note = f" ({found.note})" if found.note else ""
    bound = f", of the edge {page.label_of(found.sender)} ({found.sender})" if found.sender else ""
    by = f", the certificate {found.certificate}" if found.certificate else ""
    says = [
        f"Token {found.id}{note} is revoked: role {found.role}{bound}{by}, made "
        f"{stamp(found.created_at)}.",
        "Whoever comes with it is refused from now on. It does not come back: another one has to "
        "be made, and brought to where it is used.",
    ]
    if found.id == page.session.token_id:
        says.append("You are logged in with it: your session ends with it.")
    return Confirmation(tuple(says), link("tokens"))


def _revoke(page: PageCall, given: Given) -> str:
    revoke_token(page.running.engine, given["token"])
    return f"Token {given['token']} is revoked."


TOKEN_ACTIONS: Final = (
    PageAction("revoke-token", "Revoke the token", ("token",), _plan_revoke, _revoke, loses=True),
)
