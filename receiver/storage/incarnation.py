"""Who owns a prefix of a store: the highest incarnation, taken by put-if-absent.

    <engine>/owners/00000001        {"number": 1, "ident": "...", "parent": 0, ...}

Each start of an owner on the machine that has been it goes on as the same incarnation; a centre
that is restored elsewhere takes the next. No clock has a part in it, and none is ever given back:
who finds a higher one than its own has been replaced, and writes nothing from then on. Keys of all
that an owner puts carry its number, so what a replaced one puts before it finds out is told apart.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import msgspec

from common.decoders import from_json
from common.errors import DamagedError
from receiver.metadata.model.errors import FencedError
from receiver.storage.object_store import ObjectExistsError, ObjectMissingError

if TYPE_CHECKING:
    from common.durable import Tree
    from receiver.storage.object_store import ObjectStore

__all__ = ["Incarnation", "own_incarnation"]

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
        return f"{_folder(self.engine)}{self.number:08}"


def own_incarnation(store: ObjectStore, home: Tree, engine: str) -> Incarnation:
    """The incarnation of this machine's engine; taken now, if nobody ever did.

    Args:
        store: where the objects are.
        home: the schema directory, which remembers it.
        engine: uuid of the metadata engine.

    Raises:
        FencedError: another one has it, or had it while this machine knew nothing of it.
        DamagedError: what says so cannot be read.
    """
    known = _remembered(home)
    if known is None or known.engine != engine:
        known = Incarnation(engine=engine, number=1, ident=uuid.uuid4().hex)
        # Remembered first: who puts it and dies finds its own name there.
        home.make_dirs("storage")
        home.write_atomic(_LOCAL, msgspec.json.encode(known))
    try:
        store.put(known.key, msgspec.json.encode(known))
    except ObjectExistsError:
        there = _read(store, known.key)
        if there.ident != known.ident:
            raise _fenced(store, there) from None
    check_owner(store, known)
    return known


def check_owner(store: ObjectStore, own: Incarnation) -> None:
    """Look whether this one is still the highest.

    Raises:
        FencedError: it is not.
    """
    for found in store.objects(_folder(own.engine), after=own.key):
        raise _fenced(store, _read(store, found.key))


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
    home.make_dirs("storage")
    home.write_atomic(_LOCAL, msgspec.json.encode(taken))
    return own_incarnation(store, home, engine)


def _remembered(home: Tree) -> Incarnation | None:
    try:
        return _decode(home.read(_LOCAL, limit=_MOST), _LOCAL)
    except FileNotFoundError:
        return None


def _read(store: ObjectStore, key: str) -> Incarnation:
    try:
        return _decode(store.read(key, 0, _MOST), f"{store.url}/{key}")
    except ObjectMissingError as error:
        raise DamagedError(f"{error.message}; an owner's object is never removed") from error


def _decode(data: bytes, what: str) -> Incarnation:
    try:
        return from_json(data, Incarnation)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedError(f"{what} names no owner: {error}") from None


def _fenced(store: ObjectStore, other: Incarnation) -> FencedError:
    return FencedError(
        f"{store.url}: incarnation {other.number} ({other.ident}) of engine {other.engine} has "
        "taken over; this receiver puts nothing there any more. If it is to go on in the other's "
        "place: `tsferry-receiver storage takeover`, and start it again"
    )


def _folder(engine: str) -> str:
    return f"{engine}/owners/"
