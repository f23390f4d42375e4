"""Tells the receiver in which partitions a query meets many files, or such that overlap."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Final

from common import wire
from common.errors import TsferryError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from receiver.spark.finder import DataFile
    from receiver.spark.source.read_plans.source_options import SourceOptions

__all__ = ["crowded_among", "report_crowded"]

log = logging.getLogger(__name__)

_CROWDED: Final = 100
"""Files of one partition that a query reads."""
_OVERLAPPING: Final = 10
"""Files of one partition that are read together with others: each costs as many more."""
_MOST: Final = 100
"""Partitions that are told of, those with the most files first."""


def crowded_among(
    names: Iterable[str], overlapping: Iterable[str] = ()
) -> list[wire.CrowdedPartition]:
    """Partitions that have many of some files of a catalogue, or of such that overlap.

    Args:
        names: physical ones, of files that are read.
        overlapping: of those of them that have times of a device in common with others.
    """
    counted = Counter(map(_partition_of, names))
    together = Counter(map(_partition_of, overlapping))
    found = [
        wire.CrowdedPartition(
            storage_group=key[0], partition=key[1], files=count, overlapping=together[key]
        )
        for key, count in counted.items()
        if key is not None and (count > _CROWDED or together[key] > _OVERLAPPING)
    ]
    return sorted(found, key=lambda each: -each.files - each.overlapping)[:_MOST]


def report_crowded(
    options: SourceOptions, files: Iterable[DataFile], overlapping: Iterable[str] = ()
) -> None:
    """Tell the receiver, if the catalogue is one; whatever comes of that, the query goes on.

    Args:
        options: of the query.
        files: that it reads.
        overlapping: names of those of them that are read together with others.
    """
    url = options.catalog or ""
    if not url.startswith(("http://", "https://")):
        return
    partitions = crowded_among((each.name for each in files), overlapping)
    if not partitions:
        return
    from receiver.storage.reading.reader_calls import OPTION_NAMES, ReaderCalls, shown_certificate

    body = wire.encode(wire.CrowdedReport(partitions=partitions))
    try:
        calls = ReaderCalls(
            url,
            token=options.token,
            ca_cert=options.ca_cert,
            certificate=shown_certificate(
                options.client_cert, options.client_key, options.ca_cert, OPTION_NAMES
            ),
            what="option catalog",
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
