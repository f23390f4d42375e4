"""Putting an object, and believing that the store has it.

A key that is taken is our own, of a try whose answer was lost: who puts by this has keys that
nobody else can have. What lies there is read back, for how far that try came nobody knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from common.digests import md5
from receiver.storage.stores.object_content import ContentChangedError
from receiver.storage.stores.object_store import Fingerprint, ObjectExistsError, ObjectMissingError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Executor

    from receiver.storage.stores.object_content import ObjectContent
    from receiver.storage.stores.object_store import ObjectStore

__all__ = [
    "SentObject",
    "is_confirmed",
    "put_confirmed",
    "put_sent",
    "read_back",
    "read_through",
    "unconfirmed",
]

_BLOCK = 8 << 20


def put_confirmed(
    store: ObjectStore,
    key: str,
    content: ObjectContent,
    about: Mapping[str, str],
    *,
    look_first: bool = False,
    resume: str | None = None,
    began: Callable[[str], None] = lambda _: None,
    paced: Callable[[int], None] = lambda _: None,
) -> Fingerprint:
    """Put an object, or find it; see `ObjectStore.upload`.

    Args:
        store: where it goes.
        key: of the object.
        content: its bytes.
        about: what is said of it.
        look_first: it may well be there, and its bytes need not go to be told so.
        resume: an attempt of an earlier call.
        began: called with the attempt's name.
        paced: called with a number of bytes before they go.

    Returns:
        What the store says of it, as far as it knows a digest.

    Raises:
        ContentChangedError: the content has another MD5, or the store has other bytes.
    """
    sent = put_sent(
        store,
        key,
        content,
        about,
        look_first=look_first,
        resume=resume,
        began=began,
        paced=paced,
    )
    if not sent.confirmed and not is_confirmed(store, sent):
        raise ContentChangedError(f"{store.url}: {key}: the store has other bytes")
    return sent.printed


class SentObject(NamedTuple):
    """What has gone to a store.

    Attributes:
        key: of the object.
        printed: what was computed of the bytes that went.
        md5: of the whole, in hex.
        confirmed: whether it was read back.
    """

    key: str
    printed: Fingerprint
    md5: str
    confirmed: bool


def put_sent(
    store: ObjectStore,
    key: str,
    content: ObjectContent,
    about: Mapping[str, str],
    *,
    look_first: bool = False,
    resume: str | None = None,
    began: Callable[[str], None] = lambda _: None,
    paced: Callable[[int], None] = lambda _: None,
) -> SentObject:
    """As `put_confirmed`, and whoever calls has it confirmed before it counts.

    Raises:
        ContentChangedError: the content has another MD5, or the store had other bytes already.
    """
    try:
        if look_first and _is_there(store, key):
            raise ObjectExistsError(key)
        sent = store.upload(key, content, about, resume=resume, began=began, paced=paced)
    except ObjectExistsError:
        read_back(store, key, content)
        printed = Fingerprint(content.size, store.head(key).digests)
        return SentObject(key, printed, content.md5, confirmed=True)
    return SentObject(key, sent, content.md5, confirmed=False)


def is_confirmed(store: ObjectStore, sent: SentObject) -> bool:
    """Whether the store has what was sent: it says so, or, where it knows no digest, is read."""
    agrees = store.agrees(sent.key, sent.printed)
    if agrees is None:
        return read_through(store, sent.key, sent.printed.size, sent.md5)
    return agrees


def unconfirmed(store: ObjectStore, sent: Sequence[SentObject], pool: Executor) -> set[str]:
    """Keys of what was sent and the store does not have; of many it tells at once.

    Args:
        store: where they went.
        sent: not confirmed yet.
        pool: asks for those of which it does not.
    """
    there = store.agreeing({each.key: each.printed for each in sent})
    rest = [each for each in sent if each.key not in there]
    answers = pool.map(lambda each: is_confirmed(store, each), rest)
    return {each.key for each, is_there in zip(rest, answers, strict=True) if not is_there}


def _is_there(store: ObjectStore, key: str) -> bool:
    try:
        store.read(key, 0, 1)  # the cheapest question
    except ObjectMissingError:
        return False
    return True


def read_back(store: ObjectStore, key: str, content: ObjectContent) -> None:
    """Read all of an object.

    Raises:
        ContentChangedError: it is not this content.
    """
    if not read_through(store, key, content.size, content.md5):
        raise ContentChangedError(f"{store.url}: {key}: the store has other bytes")


def read_through(store: ObjectStore, key: str, size: int, expected: str) -> bool:
    """Whether all of an object's bytes have an MD5."""
    digest, at = md5(), 0
    while at < size:
        piece = store.read(key, at, min(_BLOCK, size - at))
        if not piece:
            break
        digest.update(piece)
        at += len(piece)
    return at == size and digest.hexdigest() == expected
