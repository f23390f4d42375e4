"""The same answers from the directories, for when no server runs.

Nothing is recovered and, tokens apart, nothing is written: the parts that a server would start are
made and left still. What only lives in a server (uploads under way, heartbeats) is not shown.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from common.durable import Tree
from common.errors import NotFoundError
from receiver.load.service import LoadService
from receiver.metadata.engine import Engine
from receiver.open_engine import open_engine
from receiver.operator.operating import Operating, make_token
from receiver.operator.wire import QuarantineAnswer, SendersAnswer, TokensAnswer
from receiver.principal import OPERATOR, Principal
from receiver.transfer.checks import Checks
from receiver.transfer.uploads import Uploads

if TYPE_CHECKING:
    from receiver.config import ReceiverConfig
    from receiver.operator.views import FileView, OwnerView, StatusView, TokenMade
    from receiver.operator.wire import TokenRequest

__all__ = [
    "create_token",
    "files",
    "owners",
    "quarantine",
    "revoke_token",
    "senders",
    "status",
    "tokens",
]

WHO = Principal(OPERATOR, None, (), None, "")
"""Whoever may read the directories."""


def status(config: ReceiverConfig, problem: str) -> StatusView:
    """As far as the directories tell; `problem` says that no server runs."""
    with _looking(config) as operating:
        return operating.status(WHO, started=0.0, problem=problem)


def senders(config: ReceiverConfig) -> SendersAnswer:
    """All senders."""
    with _looking(config) as operating:
        return SendersAnswer(senders=operating.senders(WHO))


def files(
    config: ReceiverConfig,
    sender: str | None,
    state: str | None,
    unverified: bool,
    limit: int | None,
) -> list[FileView]:
    """Rows of the catalogue."""
    found: list[FileView] = []
    after: str | None = None
    with _looking(config) as operating:
        while limit is None or len(found) < limit:
            most = config.limits.max_page_items if limit is None else limit - len(found)
            page = operating.files(
                WHO, sender=sender, state=state, unverified=unverified, after=after, limit=most
            )
            found += page.files
            if page.next is None:
                break
            after = page.next
    return found


def owners(config: ReceiverConfig, sender: str | None) -> list[OwnerView]:
    """Devices and who owns them."""
    found: list[OwnerView] = []
    after: str | None = None
    with _looking(config) as operating:
        while True:
            page = operating.owners(
                WHO, sender=sender, after=after, limit=config.limits.max_page_items
            )
            found += page.owners
            if page.next is None:
                return found
            after = page.next


def quarantine(config: ReceiverConfig, sender: str | None) -> QuarantineAnswer:
    """Files that were refused or found bad."""
    with _looking(config) as operating:
        return QuarantineAnswer(entries=operating.quarantine_list(WHO, sender=sender))


def tokens(config: ReceiverConfig) -> TokensAnswer:
    """All tokens, without their secrets."""
    with _looking(config) as operating:
        return TokensAnswer(tokens=operating.token_list(WHO))


def create_token(config: ReceiverConfig, request: TokenRequest) -> TokenMade:
    """Make a token.

    Raises:
        LockedError: a server runs after all.
    """
    with open_engine(config) as engine:
        return make_token(
            engine,
            request.role,
            sender=request.sender,
            scope=request.scope,
            note=request.note,
            expires=request.expires,
        )


def revoke_token(config: ReceiverConfig, token: str) -> None:
    """Make a token worthless.

    Raises:
        LockedError: a server runs after all.
    """
    with open_engine(config) as engine, _operating(config, engine) as operating:
        operating.token_revoke(WHO, token)


@contextmanager
def _looking(config: ReceiverConfig) -> Iterator[Operating]:
    with Engine.read_only(config.schema_dir) as engine, _operating(config, engine) as operating:
        yield operating


@contextmanager
def _operating(config: ReceiverConfig, engine: Engine) -> Iterator[Operating]:
    with ExitStack() as stack:
        trees = [stack.enter_context(Tree(path)) for path in config.data_dirs if path.is_dir()]
        if not trees:
            raise NotFoundError(f"there is no data directory at {config.data_dirs[0]}")
        load = LoadService(config, engine, trees, time.time)
        uploads = Uploads(config, engine, load, clock=time.time)
        checks = Checks(config, engine, load, clock=time.time)
        yield Operating(config, engine, load, uploads, checks, clock=time.time)
