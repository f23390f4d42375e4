"""Who owns a prefix of a store: the highest incarnation, taken by put-if-absent.

    <engine>/owners/00000001        {"number": 1, "ident": "...", "parent": 0, ...}

Each start of an owner on the machine that has been it goes on as the same incarnation; a centre
that is restored elsewhere takes the next. No clock has a part in it, and none is ever given back:
who finds a higher one than its own has been replaced, and writes nothing from then on. Keys of all
that an owner puts carry its number, so what a replaced one puts before it finds out is told apart.

An owner's object is never removed. So a store that lacks the one that was put there is another
store, or the empty directory under a mount that is away, and nothing is put or believed there.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, TypeVar

import msgspec

from common.decoders import from_json
from common.errors import DamagedError
from receiver.metadata.log.follower_mark import refuse_copy
from receiver.metadata.model.errors import FencedError
from receiver.storage.object_store import (
    ObjectExistsError,
    ObjectMissingError,
    StoreRefusedError,
)

if TYPE_CHECKING:
    from common.durable import Tree
    from receiver.storage.object_store import ObjectStore

__all__ = [
    "Incarnation",
    "forget_store",
    "has_been_put",
    "incarnations",
    "known_incarnation",
    "own_incarnation",
]

_Form = TypeVar("_Form")

_LOCAL = "storage/incarnation.json"
_MOST = 1 << 16


class Incarnation(msgspec.Struct, frozen=True, kw_only=True):
    """One owner of an engine's objects.

    Attributes:
        engine: uuid of the metadata engine.
        number: from 1 up.
        ident: random; tells its object from that of another that took the same number.
        parent: the number that it goes on from, 0 for none.
    """

    engine: str
    number: int
    ident: str
    parent: int = 0

    @property
    def key(self) -> str:
        """Of the object that says so."""
        return _key(self.engine, self.number)


class _Remembered(msgspec.Struct, frozen=True):
    owner: Incarnation
    put: bool
    """Whether the store has said that it is there."""


def own_incarnation(
    store: ObjectStore, home: Tree, engine: str, *, is_backup: bool = False
) -> Incarnation:
    """The incarnation of this machine's engine; taken now, if nobody ever did.

    Args:
        store: where the objects are.
        home: the schema directory, which remembers it.
        engine: uuid of the metadata engine.
        is_backup: it is one of any number of places, which may be new each.

    Raises:
        FencedError: another one has it, or had it while this machine knew nothing of it.
        StoreRefusedError: it was put, and is not there.
        DamagedError: what says so cannot be read.
    """
    known = _remembered(home)
    if known is None or known.owner.engine != engine:
        # Remembered first: who puts it and dies finds its own name there.
        owner = Incarnation(engine=engine, number=1, ident=uuid.uuid4().hex)
        known = _remember(home, owner, put=False)
    if is_backup or not known.put:
        _put(store, known.owner)
    if not is_backup and not known.put:
        known = _remember(home, known.owner, put=True)
    check_owner(store, known.owner)
    return known.owner


def known_incarnation(home: Tree, engine: str) -> int:
    """The number that this machine's engine has; 0 where no store ever made it take one."""
    known = _remembered(home)
    return known.owner.number if known is not None and known.owner.engine == engine else 0


def has_been_put(home: Tree, engine: str) -> bool:
    """Whether a store has said that it has the incarnation of this machine's engine."""
    known = _remembered(home)
    return known is not None and known.owner.engine == engine and known.put


def forget_store(home: Tree) -> None:
    """Let the next store be another one: this machine was made of a backup, say."""
    known = _remembered(home)
    if known is not None:
        _remember(home, known.owner, put=False)


def check_owner(store: ObjectStore, own: Incarnation) -> None:
    """Look whether this one is still the highest.

    Raises:
        FencedError: it is not.
        StoreRefusedError: it is not there at all.
    """
    is_there = False
    for found in store.objects(_folder(own.engine), after=_key(own.engine, own.number - 1)):
        if found.key != own.key:
            raise _fenced(store, _read(store, found.key))
        is_there = True
    if not is_there:
        raise StoreRefusedError(
            f"{store.url} has no {own.key}, which this receiver has put: it is another store, or "
            "not mounted; nothing is put there"
        )


def _put(store: ObjectStore, own: Incarnation) -> None:
    try:
        store.put(own.key, msgspec.json.encode(own))
    except ObjectExistsError:
        there = _read(store, own.key)
        if there.ident != own.ident:
            raise _fenced(store, there) from None


def incarnations(store: ObjectStore, engine: str) -> list[int]:
    """The numbers that were taken, the newest first."""
    found = [each.key.rpartition("/")[2] for each in store.objects(_folder(engine))]
    return sorted((int(name) for name in found if name.isdecimal()), reverse=True)


def next_incarnation(store: ObjectStore, home: Tree, engine: str) -> Incarnation:
    """Take over: the incarnation behind the highest that there is.

    Raises:
        FencedError: somebody else did so at the same moment.
    """
    newest = ""
    for found in store.objects(_folder(engine)):
        newest = found.key
    parent = _read(store, newest).number if newest else 0
    taken = Incarnation(engine=engine, number=parent + 1, ident=uuid.uuid4().hex, parent=parent)
    _remember(home, taken, put=False)
    return own_incarnation(store, home, engine)


def _remember(home: Tree, owner: Incarnation, *, put: bool) -> _Remembered:
    refuse_copy(home)
    known = _Remembered(owner, put)
    home.make_dirs("storage")
    home.write_atomic(_LOCAL, msgspec.json.encode(known))
    return known


def _remembered(home: Tree) -> _Remembered | None:
    try:
        return _decode(home.read(_LOCAL, limit=_MOST), _LOCAL, _Remembered)
    except FileNotFoundError:
        return None


def _read(store: ObjectStore, key: str) -> Incarnation:
    try:
        return _decode(store.read(key, 0, _MOST), f"{store.url}/{key}", Incarnation)
    except ObjectMissingError as error:
        raise DamagedError(f"{error.message}; an owner's object is never removed") from error


def _decode(data: bytes, what: str, form: type[_Form]) -> _Form:
    try:
        return from_json(data, form)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedError(f"{what} names no owner: {error}") from None


def _fenced(store: ObjectStore, other: Incarnation) -> FencedError:
    return FencedError(
        f"{store.url}: incarnation {other.number} ({other.ident}) of engine {other.engine} has "
        "taken over; this receiver puts nothing there any more. If it is to go on in the other's "
        "place: `tsferry-receiver storage takeover`, and start it again"
    )


def _key(engine: str, number: int) -> str:
    return f"{_folder(engine)}{number:08}"


def _folder(engine: str) -> str:
    return f"{engine}/owners/"
