"""Senders that commands are given: by uuid, the beginning of one, or label."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from common.console.cli import Invocation
from receiver.config import ReceiverConfig
from receiver.operator.client import ask
from receiver.operator.edges.senders import all_senders
from receiver.operator.named_senders import UUID_LENGTH, sender_named
from receiver.operator.views.wire import SendersAnswer

__all__ = ["asked_senders", "sender_argument", "sender_option"]

_Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def sender_argument(name: str, *, required: bool = True) -> _Decorator:
    """An argument that names a sender; the command gets its uuid."""
    return click.argument(name, required=required, callback=_uuid)


def sender_option(
    help_text: str = "Only of this sender: uuid, the beginning of one, or label.",
    *,
    required: bool = False,
) -> _Decorator:
    """The option `--sender`; the command gets a uuid."""
    return click.option("--sender", required=required, callback=_uuid, help=help_text)


def asked_senders(config: ReceiverConfig) -> SendersAnswer:
    """All senders, of the server that runs or of its directory."""
    return ask(
        config,
        lambda server: server.ask("GET", "/v1/senders", SendersAnswer),
        all_senders,
    )


def _uuid(context: click.Context, _: click.Parameter, name: str | None) -> str | None:
    """A whole uuid is not asked about: files may be of a sender that was never here."""
    if name is None or context.resilient_parsing or _is_uuid(name):
        return name
    invocation = context.find_object(Invocation)
    assert invocation is not None
    senders = asked_senders(invocation.load().value).senders
    return sender_named(((each.uuid, each.label) for each in senders), name)


def _is_uuid(name: str) -> bool:
    return len(name) == UUID_LENGTH and all(each in "0123456789abcdef" for each in name)
