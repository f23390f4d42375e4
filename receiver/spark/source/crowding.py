"""Tells the receiver in which partitions a query meets many files."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Final

from common import wire
from common.errors import TsferryError
from receiver.storage.reading.reader_calls import ReaderCalls

if TYPE_CHECKING:
    from collections.abc import Iterable

    from receiver.spark.finder import DataFile
    from receiver.spark.source.source_options import SourceOptions

__all__ = ["crowded_among", "report_crowded"]

log = logging.getLogger(__name__)

_CROWDED: Final = 100
"""Files of one partition that a query reads."""
_MOST: Final = 100
"""Partitions that are told of, those with the most files first."""


def crowded_among(files: Iterable[DataFile]) -> list[wire.CrowdedPartition]:
    """Partitions that have many of some files of a catalogue."""
    counted = Counter(map(_partition_of, (each.name for each in files)))
    return [
        wire.CrowdedPartition(storage_group=key[0], partition=key[1], files=count)
        for key, count in counted.most_common(_MOST)
        if key is not None and count > _CROWDED
    ]


def report_crowded(options: SourceOptions, files: Iterable[DataFile]) -> None:
    """Tell the receiver, if the catalogue is one; whatever comes of that, the query goes on."""
    url = options.catalog or ""
    if not url.startswith(("http://", "https://")):
        return
    partitions = crowded_among(files)
    if not partitions:
        return
    body = wire.encode(wire.CrowdedReport(partitions=partitions))
    try:
        calls = ReaderCalls(
            url, token=options.token, ca_cert=options.ca_cert, what="option catalog"
        )
        try:
            calls.post(f"{wire.BASE}/catalogue/crowded", {}, body)
        finally:
            calls.close()
    except TsferryError as error:  # an older receiver, or a node that only reads
        log.debug("the receiver does not hear of crowded partitions: %s", error.message)


def _partition_of(physical: str) -> tuple[str, str] | None:
    """Storage group and partition of a file, as its path has them; None of another path."""
    nodes = physical.split("/")
    return (nodes[1], nodes[3]) if len(nodes) == 5 else None
