"""A centre that was replaced is sent nothing: of each engine the highest incarnation is remembered.

A centre with an object store says at each check which of the owners of its copies it is (a number,
and an id). One that was restored elsewhere takes the next number. The one before it may still run
somewhere, and be reached under the same address: what it would acknowledge is no part of what goes
on. No clock has a part in this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.errors import EXIT_UNREACHABLE, Permanent
from sender.kept.receiver_file import SeenIncarnation

if TYPE_CHECKING:
    from common.wire import IncarnationMark
    from sender.kept.receiver_file import Receiver, ReceiverFile

__all__ = ["ReplacedCentreError", "refuse_replaced", "remember_incarnation"]


class ReplacedCentreError(Permanent):
    """The centre that answers was replaced by another one of the same engine."""

    slug = "replaced-centre"
    exit_code = EXIT_UNREACHABLE
    http_status = 409


def refuse_replaced(now: Receiver, name: str, engine: str, told: IncarnationMark | None) -> None:
    """See that the centre that answers is none that was replaced.

    Args:
        now: what is remembered of it.
        name: of the receiver, for messages.
        engine: that answers.
        told: the incarnation that it says it is; None where it says none, which is below all.

    Raises:
        ReplacedCentreError: it was.
    """
    seen = next((each for each in now.incarnations if each.engine == engine), None)
    if seen is None or (told is not None and told.number > seen.number):
        return
    if told is not None and (told.number, told.ident) == (seen.number, seen.ident):
        return
    here = "none" if told is None else f"{told.number} ({told.ident})"
    raise ReplacedCentreError(
        f"{name}: the centre that answers is incarnation {here} of engine {engine}, and "
        f"{seen.number} ({seen.ident}) has answered here before: it was replaced, and nothing is "
        "sent to it. Stop it, or give its address to the one that goes on; if this one is to go "
        "on all the same: tsferry-sender sync --accept-receiver"
    )


def remember_incarnation(
    memory: ReceiverFile,
    name: str,
    engine: str,
    told: IncarnationMark | None,
    *,
    accept: bool = False,
) -> None:
    """Remember who answers, on disk before this returns.

    Args:
        memory: of the receiver.
        name: of it, for messages.
        engine: that answers.
        told: see `refuse_replaced`.
        accept: the operator says that it is the right one, whatever is remembered.

    Raises:
        ReplacedCentreError: it was replaced, and the operator says nothing.
    """
    if not accept:
        refuse_replaced(memory.now, name, engine, told)
    others = [each for each in memory.now.incarnations if each.engine != engine]
    if told is not None:
        others.append(SeenIncarnation(engine=engine, number=told.number, ident=told.ident))
    memory.update(incarnations=tuple(others))
