"""Who owns a prefix of a store: the highest incarnation, taken by put-if-absent.

    <engine>/owners/00000001        {"number": 1, "ident": "...", "parent": 0, ...}

Each start of an owner on the machine that has been it goes on as the same incarnation; a centre
that is restored elsewhere takes the next. No clock has a part in it, and none is ever given back:
who finds a higher one than its own has been replaced, and writes nothing from then on. Keys of all
that an owner puts carry its number, so what a replaced one puts before it finds out is told apart.

Where the log is kept in etcd, so is who this engine is in the store, and etcd wins. It lets one
process at a time write, so a machine that finds itself behind what is noted there is the rightful
one: it takes the next incarnation by itself, if the highest is the one that is noted. A highest one
that etcd knows nothing of, a centre restored elsewhere, fences it off like any other.

An owner's object is never removed. So a store that lacks the one that was put there is another
store, or the empty directory under a mount that is away, and nothing is put or believed there.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, TypeVar

import msgspec

from common import crash
from common.decoders import from_json
from common.errors import DamagedError
from common.text_numbers import whole_number
from receiver.metadata.log.follower_mark import refuse_copy
from receiver.metadata.model.errors import FencedError
from receiver.storage.stores.object_store import (
    ObjectExistsError,
    ObjectMissingError,
    OtherStoreError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from common.durable import Tree
    from receiver.metadata.model.remote_log import RemoteNotes
    from receiver.storage.stores.object_store import ObjectStore

__all__ = [
    "Incarnation",
    "check_owner",
    "forget_store",
    "has_been_put",
    "incarnations",
    "known_incarnation",
    "known_owner",
    "next_incarnation",
    "own_incarnation",
    "succeed",
]

_Form = TypeVar("_Form")

_LOCAL = "storage/incarnation.json"
_NOTE = "incarnation"
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
    store: ObjectStore,
    home: Tree,
    engine: str,
    *,
    is_backup: bool = False,
    notes: RemoteNotes | None = None,
    succeeds: Callable[[], None] = lambda: None,
) -> Incarnation:
    """The incarnation of this machine's engine; taken now, if nobody ever did.

    Args:
        store: where the objects are.
        home: the schema directory, which remembers it.
        engine: uuid of the metadata engine.
        is_backup: it is one of any number of places, which may be new each.
        notes: of the remote log that this process alone appends to; they remember it too.
        succeeds: called before this machine takes the place of the one that the notes tell of;
            what it raises holds that up.

    Raises:
        FencedError: another one has it, or had it while this machine knew nothing of it.
        OtherStoreError: it was put, and is not there.
        DamagedError: what says so cannot be read.
    """
    known, noted = _remembered(home, engine), _noted(notes, engine)
    if notes is not None and noted is not None and _is_behind(known, noted):
        _note(notes, noted)  # who cannot has lost its place, and takes none here
        if not noted.put:  # that machine may not have come to it
            _put(store, noted.owner)
        check_owner(store, noted.owner)
        succeeds()
        return succeed(store, home, noted.owner, notes)
    if known is None:
        # Remembered first: who puts it and dies finds its own name there.
        owner = Incarnation(engine=engine, number=1, ident=uuid.uuid4().hex)
        known = _remember(home, owner, notes, put=False)
    elif noted is not None and noted.owner == known.owner:
        known = _Remembered(known.owner, known.put or noted.put)
    elif notes is not None:
        _note(notes, known)  # of a restore, a takeover, or from before there were notes
    return _claim(store, home, known, notes, is_backup=is_backup)


def succeed(
    store: ObjectStore, home: Tree, before: Incarnation, notes: RemoteNotes | None
) -> Incarnation:
    """Take the incarnation behind one that is this engine's by what is remembered.

    Raises:
        FencedError: somebody else took it.
    """
    taken = Incarnation(
        engine=before.engine,
        number=before.number + 1,
        ident=uuid.uuid4().hex,
        parent=before.number,
    )
    return _claim(store, home, _remember(home, taken, notes, put=False), notes)


def _is_behind(known: _Remembered | None, noted: _Remembered) -> bool:
    """Whether another machine, or another directory, has been the owner since this one was.

    One that is ahead was taken here, by an operator: a restore or a takeover.
    """
    if known is None or known.owner.number < noted.owner.number:
        return True
    return known.owner.number == noted.owner.number and known.owner != noted.owner


def _claim(
    store: ObjectStore,
    home: Tree,
    known: _Remembered,
    notes: RemoteNotes | None,
    *,
    is_backup: bool = False,
) -> Incarnation:
    """Have what is remembered in the store, and see that it is the highest."""
    if is_backup or not known.put:
        _put(store, known.owner)
    if not is_backup and not known.put:
        _remember(home, known.owner, notes, put=True)
    check_owner(store, known.owner)
    return known.owner


def known_owner(home: Tree, engine: str) -> Incarnation | None:
    """Who this machine's engine is; None where no store ever made it take a number."""
    known = _remembered(home, engine)
    return None if known is None else known.owner


def known_incarnation(home: Tree, engine: str) -> int:
    """The number that this machine's engine has; 0 where no store ever made it take one."""
    owner = known_owner(home, engine)
    return 0 if owner is None else owner.number


def has_been_put(home: Tree, engine: str, notes: RemoteNotes | None = None) -> bool:
    """Whether a store has said that it has an incarnation of this engine."""
    found = _remembered(home, engine), _noted(notes, engine)
    return any(each is not None and each.put for each in found)


def forget_store(home: Tree, engine: str, notes: RemoteNotes | None = None) -> None:
    """Let the next store be another one: this machine was made of a backup, say."""
    known = _remembered(home, engine)
    if known is not None:
        _remember(home, known.owner, notes, put=False)


def check_owner(store: ObjectStore, own: Incarnation) -> None:
    """Look whether this one is still the highest.

    Raises:
        FencedError: it is not.
        OtherStoreError: it is not there at all.
    """
    is_there = False
    for found in store.objects(_folder(own.engine), after=_key(own.engine, own.number - 1)):
        if found.key != own.key:
            raise _fenced(store, _read(store, found.key))
        is_there = True
    if not is_there:
        raise OtherStoreError(
            f"{store.url} has no {own.key}, which this receiver has put: it is another store, or "
            "not mounted; nothing is put there"
        )


def _put(store: ObjectStore, own: Incarnation) -> None:
    try:
        store.put(own.key, msgspec.json.encode(own))
        crash.point("storage.incarnation.put")
    except ObjectExistsError:
        there = _read(store, own.key)
        if there.ident != own.ident:
            raise _fenced(store, there) from None


def incarnations(store: ObjectStore, engine: str) -> list[int]:
    """The numbers that were taken, the newest first."""
    named = (each.key.rpartition("/")[2] for each in store.objects(_folder(engine)))
    found = map(whole_number, named)
    return sorted((number for number in found if number is not None), reverse=True)


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
    _remember(home, taken, None, put=False)
    return own_incarnation(store, home, engine)


def _remember(
    home: Tree, owner: Incarnation, notes: RemoteNotes | None, *, put: bool
) -> _Remembered:
    refuse_copy(home)
    known = _Remembered(owner, put)
    if notes is not None:
        _note(notes, known)  # first: who dies here is behind it, and takes the next
        crash.point("storage.incarnation.noted")
    home.make_dirs("storage")
    home.write_atomic(_LOCAL, msgspec.json.encode(known))
    crash.point("storage.incarnation.remembered")
    return known


def _remembered(home: Tree, engine: str) -> _Remembered | None:
    try:
        found = _decode(home.read(_LOCAL, limit=_MOST), _LOCAL, _Remembered)
    except FileNotFoundError:
        return None
    return found if found.owner.engine == engine else None


def _note(notes: RemoteNotes, known: _Remembered) -> None:
    notes.put_note(_NOTE, msgspec.json.encode(known))


def _noted(notes: RemoteNotes | None, engine: str) -> _Remembered | None:
    data = None if notes is None else notes.note(_NOTE)
    if data is None:
        return None
    found = _decode(data, f"the note {_NOTE} in etcd", _Remembered)
    return found if found.owner.engine == engine else None


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
