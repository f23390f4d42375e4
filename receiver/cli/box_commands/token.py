"""`token`: who may send, read and operate."""

from __future__ import annotations

import time

import click
from msgspec.structs import asdict

from common.console.cli import Invocation, emit_json
from common.console.json_option import json_option
from common.console.terminal import printable
from common.errors import ProtocolError, UsageError
from receiver.cli.box_commands.enrol import enrol, lifetime
from receiver.cli.command_answers import TokenRevoked
from receiver.cli.showing import commit_time, moment, show
from receiver.config import ReceiverConfig
from receiver.metadata.model import records
from receiver.open_engine import open_engine
from receiver.operator.client import NotRunningError, OperatorClient, ask, segment
from receiver.operator.edges.tokens import list_tokens as list_of_tokens
from receiver.operator.edges.tokens import make_token, revoke_token
from receiver.operator.views.token_views import TokenMade
from receiver.operator.views.wire import TokenRequest, TokensAnswer

__all__ = ["token"]

_HEADERS = ("ID", "ROLE", "SENDER", "SCOPE", "DELETES", "EXPIRES", "MADE", "NOTE", "CERTIFICATE")
_LIMITS = {records.SENDER: "held", records.WRITER: "no overwriting"}
"""What a token says that may take nothing out of sight."""


@click.group()
def token() -> None:
    """Tokens of senders, writers, readers, operators, workers and storage nodes."""


@token.command(
    epilog="Example: tsferry-receiver token create --role sender --sender "
    "0f4e1c0e9a8b4d7c8e6f5a4b3c2d1e0f --scope 'root.siteA.**' --expires 365d. "
    "Works without a server too. Exit codes: 0 done; 2 wrong usage; 4 the receiver refuses; "
    "5 another process has the directories."
)
@click.option(
    "--role",
    type=click.Choice(records.TOKEN_ROLES),
    default=records.SENDER,
    show_default=True,
    help="A sender sends, a reader looks, an operator may do all, a worker works on background "
    "tasks, a writer writes from jobs, a node keeps files.",
)
@click.option(
    "--sender", help="uuid that a sender's token is for (tsferry-sender status shows it)."
)
@click.option("--scope", multiple=True, help="Devices that it may write. May be repeated.")
@click.option(
    "--as",
    "owners",
    multiple=True,
    help="Sender, by uuid or label, whose devices a writer may load; centre: those of the centre, "
    "as without this; *: all. May be repeated.",
)
@click.option("--note", default="", help="For people.")
@click.option(
    "--no-deletes",
    is_flag=True,
    help="What its sender deletes takes nothing out of sight: it is held for an operator.",
)
@click.option(
    "--no-overwrite",
    is_flag=True,
    help="What a writer loads stands below points that are there, or is refused.",
)
@click.option("--expires", metavar="DURATION", help="From now, such as 12h or 365d.")
@click.option(
    "--certificate",
    metavar="NAME",
    help="Bind a client certificate instead of making a token: a DNS name or a URI of its "
    "subjectAltName (listen.client_ca says whose certificates are taken).",
)
@json_option(TokenMade)
@click.pass_obj
def create(
    invocation: Invocation[ReceiverConfig],
    role: str,
    sender: str | None,
    scope: tuple[str, ...],
    note: str,
    expires: str | None,
    no_deletes: bool,
    owners: tuple[str, ...],
    no_overwrite: bool,
    certificate: str | None,
    as_json: bool,
) -> None:
    """Make a token and show it, this once; or bind a certificate in its place."""
    if no_deletes and role == records.WRITER:
        raise UsageError("a writer deletes nothing: expected --no-overwrite")
    if no_overwrite and role != records.WRITER:
        raise UsageError("--no-overwrite is of a writer's token")
    config = invocation.load().value
    lasts = lifetime(expires)
    request = TokenRequest(
        role=role,
        sender=sender,
        scope=list(scope),
        note=note,
        # A server of before reads this one alone; the other goes by the receiver's clock.
        expires=None if lasts is None else time.time() + lasts,
        lasts=lasts,
        allow_deletes=not (no_deletes or no_overwrite),
        owners=list(owners),
        certificate=certificate,
    )
    try:
        made = OperatorClient(config).ask("POST", "/v1/tokens", TokenMade, body=request)
    except NotRunningError:
        with open_engine(config) as engine:
            made = make_token(engine, **asdict(request))
    if certificate is not None and made.certificate is None:
        raise ProtocolError(
            "the server that runs is of an older version, and made a token: tsferry-receiver token "
            f"revoke {made.id}, upgrade the server, then bind the certificate"
        )
    if as_json:
        emit_json(made)
        return
    if made.certificate is not None:
        click.echo(f"certificate {made.certificate} is bound: token {made.id} ({role})")
        if config.listen.client_ca is None:
            click.echo("no certificate is asked for yet: set listen.client_ca", err=True)
        return
    click.echo(made.token)
    click.echo(f"token {made.id} ({role}); it is shown this once and kept nowhere", err=True)


@token.command(
    "list",
    epilog="Example: tsferry-receiver token list --json. Works without a server too. "
    "Exit codes: 0 done; 2 configuration; 4 the receiver refuses.",
)
@json_option(TokensAnswer)
@click.pass_obj
def list_tokens(invocation: Invocation[ReceiverConfig], as_json: bool) -> None:
    """All tokens and bound certificates that are not revoked, without secrets."""
    answer = ask(
        invocation.load().value,
        lambda server: server.ask("GET", "/v1/tokens", TokensAnswer),
        lambda there: TokensAnswer(tokens=list_of_tokens(there.engine)),
    )
    rows: list[tuple[object, ...]] = [
        (
            each.id,
            each.role,
            each.sender or " ".join(each.owners) or None,
            " ".join(each.scope) or None,
            None if each.allow_deletes else _LIMITS.get(each.role),
            moment(each.expires),
            commit_time(each.created, each.created_at),
            each.note or None,
            each.certificate,
        )
        for each in answer.tokens
    ]
    headers: tuple[str, ...] = _HEADERS
    if not any(each.certificate for each in answer.tokens):
        headers, rows = headers[:-1], [row[:-1] for row in rows]
    show(answer, as_json, headers, rows, "there are no tokens")


@token.command(
    epilog="Example: tsferry-receiver token revoke 3f9a1c2b. Works without a server too. "
    "Exit codes: 0 done; 2 no such token; 4 the receiver refuses."
)
@click.argument("token_id", metavar="ID")
@json_option(TokenRevoked)
@click.pass_obj
def revoke(invocation: Invocation[ReceiverConfig], token_id: str, as_json: bool) -> None:
    """Make a token, or a certificate that is bound, worthless from now on."""
    config = invocation.load().value
    try:
        OperatorClient(config).tell("DELETE", f"/v1/tokens/{segment(token_id)}")
    except NotRunningError:
        with open_engine(config) as engine:
            revoke_token(engine, token_id)
    if as_json:
        emit_json(TokenRevoked(revoked=token_id))
    else:
        click.echo(f"token {printable(token_id)} is revoked")


token.add_command(enrol)
