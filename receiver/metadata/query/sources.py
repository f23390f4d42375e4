"""The source of each kind of question."""

from __future__ import annotations

from typing import Final

from receiver.metadata.query import nodes, series, tags
from receiver.metadata.query import statements as ask
from receiver.metadata.query.source import Source

__all__ = ["SOURCES"]

SOURCES: Final[dict[type, Source]] = {
    ask.ShowTimeseries: series.SHOW_TIMESERIES,
    ask.ShowDevices: nodes.SHOW_DEVICES,
    ask.ShowChildPaths: nodes.SHOW_CHILD_PATHS,
    ask.ShowChildNodes: nodes.SHOW_CHILD_NODES,
    ask.ShowStorageGroups: nodes.SHOW_STORAGE_GROUPS,
    ask.ShowTtl: nodes.SHOW_TTL,
    ask.ShowTagKeys: tags.SHOW_TAG_KEYS,
    ask.ShowTagValues: tags.SHOW_TAG_VALUES,
    ask.CountTimeseries: series.COUNT_TIMESERIES,
    ask.CountDevices: nodes.COUNT_DEVICES,
    ask.CountStorageGroups: nodes.COUNT_STORAGE_GROUPS,
    ask.CountNodes: nodes.COUNT_NODES,
}
"""By the class of the question."""
