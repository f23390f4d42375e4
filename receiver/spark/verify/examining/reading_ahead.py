"""Files of the object store, fetched into memory while those before them are proved."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from common.errors import TsferryError
from receiver.spark.late_uploads import place_now
from receiver.storage.reading.open_stores import of_process
from receiver.storage.reading.prefetching import fetched_ahead

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from receiver.spark.verify.examining.parts import FilePart

__all__ = ["read_ahead"]

log = logging.getLogger(__name__)

_AHEAD = 8 << 20
"""Bytes of one file."""


def read_ahead(parts: Iterable[FilePart]) -> Iterator[FilePart]:
    """The same parts, each when the begin of its file has come, or could not be fetched."""
    for part, fetched in fetched_ahead(parts, _fetch, _weight, of_process.pool):
        try:
            fetched()
        except TsferryError as error:  # who works on the part meets it again, and finds it
            log.debug("not fetched ahead", extra={"error": str(error)})
        yield part


def _weight(part: FilePart) -> int:
    place = part.expected.place
    return 0 if place is None else min(place.size, _AHEAD)


def _fetch(part: FilePart) -> None:
    known = part.expected
    if part.part:
        return  # a share of the devices, which begins anywhere
    if known.place is None or any(os.path.lexists(f"{e}/{known.physical}") for e in known.roots):
        return
    with of_process.file(place_now(known.place)) as source:
        source.expect([(0, source.size)])
        source.bring(_AHEAD)
