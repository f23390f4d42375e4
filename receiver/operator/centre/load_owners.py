"""Whose devices a load at the centre may bring: by the names that are given, and who gives them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from common.errors import ForbiddenError, NotFoundError
from receiver.metadata.model.centre_source import CENTRE, centre_uuid
from receiver.metadata.model.records import ANYONE, OPERATOR
from receiver.operator.named_senders import sender_named

if TYPE_CHECKING:
    from receiver.metadata.state.state import State
    from receiver.principal import Principal

__all__ = ["LoadOwners", "LoadRights", "named_owners", "rights_of", "uuid_of"]


class LoadRights(NamedTuple):
    """What a writer's token may load.

    Attributes:
        token: id of it.
        owners: uuids of those whose devices it may bring, the centre's own among them; or `*`.
        scope: patterns of devices; empty: all.
        may_overwrite: whether what it loads may stand above points that are there.
    """

    token: str
    owners: tuple[str, ...]
    scope: tuple[str, ...]
    may_overwrite: bool


def rights_of(who: Principal) -> LoadRights | None:
    """What somebody may load; None of an operator, who may load all.

    Raises:
        ForbiddenError: nothing.
    """
    who.must_write()
    if who.role == OPERATOR:
        return None
    return LoadRights(who.token_id or "", who.owners, who.scope, who.may_overwrite)


class LoadOwners(NamedTuple):
    """Whose devices a load may bring.

    Attributes:
        owner: uuid of whoever gets devices that nobody owns; empty: the centre.
        others: uuids of further senders.
        anyone: whether those of all senders.
        own: whether those of the centre.
    """

    owner: str = ""
    others: tuple[str, ...] = ()
    anyone: bool = False
    own: bool = True

    @classmethod
    def of(
        cls, state: State, engine: str, owner: str, others: Iterable[str], rights: LoadRights | None
    ) -> LoadOwners:
        """Those of a request, as far as whoever asks may.

        Args:
            state: committed.
            engine: uuid of the engine, which the centre has its own by.
            owner: uuid or label of a sender; empty: the first that a writer may load as, or the
                centre.
            others: of further senders; `*`: all.
            rights: of a writer; None of an operator, who may load whatever it is.

        Raises:
            NotFoundError: there is no such sender.
            UsageError: it is the name of several.
            ForbiddenError: it is not for that writer.
        """
        centre = centre_uuid(engine)
        if not owner and rights is not None:
            owner = next((each for each in rights.owners if each != ANYONE), CENTRE)
        names = [owner or CENTRE, *others]
        if rights is None:
            found = [each if each == ANYONE else uuid_of(state, centre, each) for each in names]
        else:
            found = [_allowed(state, centre, each, rights) for each in names]
        first = centre if found[0] == ANYONE else found[0]
        taken = {*found} if rights is None or ANYONE not in found else {*found, *rights.owners}
        anyone = ANYONE in taken and (rights is None or ANYONE in rights.owners)
        return cls(
            "" if first == centre else first,
            tuple(sorted(taken - {ANYONE, centre, first})),
            anyone,
            rights is None or ANYONE in rights.owners or centre in taken,
        )


def _allowed(state: State, centre: str, name: str, rights: LoadRights) -> str:
    """The uuid of a name, or `*`, if a writer may load for it."""
    if name == ANYONE:
        return ANYONE
    try:
        found = uuid_of(state, centre, name)
    except NotFoundError:
        found = ""
    if found and (ANYONE in rights.owners or found in rights.owners):
        return found
    raise ForbiddenError(
        f"this token may not load as {name[:100]!a}: tsferry-receiver token create --role writer "
        "--as says for whom one may"
    )


def named_owners(names: Sequence[str]) -> tuple[str, list[str]]:
    """The owner, and the others, of names as they are given: the first gets what nobody owns."""
    if not names or names[0] == ANYONE:
        return "", list(names)
    return names[0], list(names[1:])


def uuid_of(state: State, centre: str, name: str) -> str:
    """The uuid that a name is of.

    Args:
        state: committed.
        centre: uuid of the centre as a source.
        name: uuid of a sender, the beginning of one, or label; or `centre`.

    Raises:
        NotFoundError: there is no such sender.
        UsageError: it is the name of several.
    """
    if name in (CENTRE, centre):
        return centre
    return sender_named(((row.uuid, row.label) for row in state.senders.values()), name)
