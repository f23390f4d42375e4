"""`token enrol`: tokens of many edges at once."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click
from msgspec.structs import asdict, replace

from common.console.cli import Invocation, emit_json
from common.console.json_option import json_option
from common.console.terminal import counted, printable
from common.durable import Tree
from common.errors import UsageError
from common.text_numbers import whole_number
from receiver.cli.command_answers import EdgesEnrolled
from receiver.config import ReceiverConfig
from receiver.metadata.model import records
from receiver.open_engine import open_engine
from receiver.operator.client import NotRunningError, OperatorClient
from receiver.operator.edges.enrolment import (
    EdgeFiles,
    EnrolledEdge,
    ListedEdge,
    enrolment_plan,
    read_edges,
)
from receiver.operator.edges.senders import list_senders
from receiver.operator.edges.tokens import list_tokens, make_token
from receiver.operator.views.sender_views import SenderView
from receiver.operator.views.token_views import TokenMade, TokenView
from receiver.operator.views.wire import SendersAnswer, TokenRequest, TokensAnswer

__all__ = ["enrol", "lifetime"]

_LONGEST_FILE = 4096
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_Plan = Callable[[Sequence[SenderView], Sequence[TokenView]], list[EnrolledEdge]]


@click.command(
    epilog="Example: tsferry-receiver token enrol edges.csv --into edges --expires 365d. "
    "Works without a server too. Exit codes: 0 done; 2 the list is wrong, or does not go with what "
    "is there: then nothing was made; 4 the receiver refuses; 5 another process has the "
    "directories."
)
@click.argument(
    "list_file",
    metavar="LIST.csv",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
@click.option(
    "--into",
    type=click.Path(path_type=Path),
    required=True,
    help="Directory for LABEL.token and LABEL.uuid; made if it is not there.",
)
@click.option("--expires", metavar="DURATION", help="Of each token, from now, such as 365d.")
@click.option(
    "--no-deletes",
    is_flag=True,
    help="What these edges delete takes nothing out of sight: it is held for an operator.",
)
@click.option(
    "--renew",
    is_flag=True,
    help="Another token for edges that have one, whose file is not in the directory; the old one "
    "stays good.",
)
@json_option(EdgesEnrolled)
@click.pass_obj
def enrol(
    invocation: Invocation[ReceiverConfig],
    list_file: Path,
    into: Path,
    expires: str | None,
    no_deletes: bool,
    renew: bool,
    as_json: bool,
) -> None:
    """Make a sender's token, and a uuid, for each edge of a list.

    The list is CSV with a head: label, and if wanted scope (patterns between spaces; none: all
    devices) and sender (the uuid of an edge that has one). LABEL.uuid is to be the edge's
    SCHEMA_DIR/sync/uuid.txt before its first `tsferry-sender init`, LABEL.token its token_file.
    What is there stays, so a list that grew can be given again.
    """
    rows = _rows(list_file)
    config = invocation.load().value
    with Tree(into, create=True) as tree:
        files = {row.label: _files(tree, row) for row in rows}

        def plan(senders: Sequence[SenderView], tokens: Sequence[TokenView]) -> list[EnrolledEdge]:
            return enrolment_plan(
                rows,
                files,
                senders,
                tokens,
                lambda: secrets.token_hex(16),
                renew=renew,
                allow_deletes=not no_deletes,
                now=time.time(),
            )

        lasts = lifetime(expires)
        done = _make(config, plan, tree, lasts=lasts, allow_deletes=not no_deletes)
    _tell(done, into, as_json)


def lifetime(text: str | None) -> float | None:
    """The seconds that a token lasts, of `--expires`; None for ever.

    Raises:
        UsageError: it is no duration.
    """
    if text is None:
        return None
    number, unit = whole_number(text[:-1]), text[-1:]
    if not number or unit not in _UNITS:
        raise UsageError(f"--expires {text}: expected a duration such as 12h or 365d")
    return float(number * _UNITS[unit])


def _rows(list_file: Path) -> list[ListedEdge]:
    try:
        with list_file.open(encoding="utf-8-sig", newline="") as lines:
            return read_edges(lines)
    except UnicodeDecodeError as error:
        raise UsageError(f"{list_file}: not UTF-8: expected CSV") from error
    except UsageError as error:
        where = "\n".join(f"{list_file}: {line}" for line in error.message.splitlines())
        raise UsageError(where) from error


def _files(tree: Tree, row: ListedEdge) -> EdgeFiles:
    def text(suffix: str) -> str | None:
        try:
            content = tree.read(f"{row.label}{suffix}", limit=_LONGEST_FILE)
        except FileNotFoundError:
            return None
        return content.decode("ascii", "replace").strip()

    return EdgeFiles(token=text(".token"), uuid=text(".uuid"))


def _make(
    config: ReceiverConfig, plan: _Plan, tree: Tree, *, lasts: float | None, allow_deletes: bool
) -> list[EnrolledEdge]:
    def request(edge: EnrolledEdge) -> TokenRequest:
        return TokenRequest(
            role=records.SENDER,
            sender=edge.sender,
            scope=list(edge.scope),
            note=edge.label,
            expires=None if lasts is None else time.time() + lasts,
            lasts=lasts,
            allow_deletes=allow_deletes,
        )

    try:
        server = OperatorClient(config, keep=True)
        senders = server.ask("GET", "/v1/senders", SendersAnswer).senders
    except NotRunningError:
        with open_engine(config) as engine:
            steps = plan(list_senders(engine), list_tokens(engine))
            return [
                _enrolled(tree, each, lambda edge: make_token(engine, **asdict(request(edge))))
                for each in steps
            ]
    steps = plan(senders, server.ask("GET", "/v1/tokens", TokensAnswer).tokens)
    return [
        _enrolled(
            tree,
            each,
            lambda edge: server.ask("POST", "/v1/tokens", TokenMade, body=request(edge)),
        )
        for each in steps
    ]


def _enrolled(
    tree: Tree, edge: EnrolledEdge, make: Callable[[EnrolledEdge], TokenMade]
) -> EnrolledEdge:
    # The uuid first: what is cut off behind it goes on under the same.
    tree.write_atomic(f"{edge.label}.uuid", f"{edge.sender}\n".encode(), mode=0o600)
    if edge.state == "kept":
        return edge
    made = make(edge)
    tree.write_atomic(f"{edge.label}.token", f"{made.token}\n".encode(), mode=0o600)
    return replace(edge, token=made.id)


def _tell(done: Sequence[EnrolledEdge], into: Path, as_json: bool) -> None:
    if as_json:
        emit_json(EdgesEnrolled(directory=str(into), edges=list(done)))
        return
    made = [each for each in done if each.state == "made"]
    for each in made:
        scope = " ".join(each.scope) or "all devices"
        click.echo(printable(f"{each.label}: token {each.token} for {each.sender}, {scope}"))
    click.echo(
        printable(
            f"{counted(len(made), 'token')} made, {len(done) - len(made)} kept; the files "
            f"in {into} are all "
            "that has them"
        )
    )
