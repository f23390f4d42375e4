"""The schema as an engine shows it, and as the model has it, in values that compare."""

from __future__ import annotations

from collections import Counter
from typing import Any

from receiver.metadata.engine import Engine
from receiver.metadata.model.paths import parse_pattern
from receiver.metadata.model.types import COMPRESSION_TEXTS, ENCODING_TEXTS, TYPE_TEXTS
from receiver.metadata.query import questions as ask
from receiver.metadata.query.answers import Answer
from receiver.metadata.schema import Schema
from tests.support.schema_model import Nodes, Tree, nodes_of, pattern_of, text

_ROOT = parse_pattern("root")
_EVERYTHING = pattern_of("root.**")
_LEVELS = range(4)


def of_engine(engine: Engine, at: int | None = None) -> dict[str, Any]:
    """Everything, as the engine answers; `at` a commit, None the newest.

    What no question asks for (props, and tags as they stand in the index) is taken of the state.
    """

    def rows(query: ask.Query) -> list[Any]:
        return list(Answer(engine, query, at=at))

    with engine.reading() as state:  # so that all of it is of one commit
        series = {nodes_of(row[0]): row for row in rows(ask.ShowTimeseries())}
        return {
            "groups": rows(ask.ShowStorageGroups()),
            "ttls": rows(ask.ShowTtl()),
            "series": {
                nodes: _series(state.schema, nodes, row, at) for nodes, row in series.items()
            },
            "order": list(series),
            "hottest": [row[0] for row in rows(ask.ShowTimeseries(by_heat=True))],
            "devices": [row[:4] for row in rows(ask.ShowDevices())],
            "nodes": rows(ask.ShowChildPaths()) + rows(ask.ShowChildPaths(pattern=ask.ALL)),
            "names": [row[0] for row in rows(ask.ShowChildNodes(pattern=ask.ALL))],
            "tag keys": [row[0] for row in rows(ask.ShowTagKeys())],
            "tags": rows(ask.ShowTagValues()),
            "counts": [
                rows(ask.CountTimeseries()),
                rows(ask.CountDevices()),
                rows(ask.CountStorageGroups()),
                *[rows(ask.CountNodes(level=level)) for level in _LEVELS],
            ],
            "by level": [rows(ask.CountTimeseries(level=level)) for level in _LEVELS],
            "keys": state.keys.load_with_prefix("", at),
        }


def _series(schema: Schema, nodes: Nodes, shown: tuple[Any, ...], at: int | None) -> dict[str, Any]:
    row = schema.series.find(nodes, at)
    return {
        "alias": shown[1],
        "storage_group": shown[2],
        "codes": shown[3:6],
        "labels": shown[6:8],
        "heat": shown[8],
        "created": shown[9],
        "props": schema.series.describe(row, at).props,
        "indexed": schema.index.tags(row, at),
    }


def of_model(tree: Tree) -> dict[str, Any]:
    """What `of_engine` must give."""
    groups, devices = sorted(tree.groups), _devices(tree)
    nodes = sorted(tree.nodes() - {("root",)})
    tags = {pair for row in tree.series.values() for pair in row.tags.items()}
    return {
        "groups": [
            (text(each), tree.groups[each].ttl, tree.groups[each].created) for each in groups
        ],
        "ttls": [(text(each), tree.groups[each].ttl) for each in groups],
        "series": {
            nodes: {
                "alias": row.alias,
                "storage_group": text(tree.group_of(nodes) or ()),
                "codes": (
                    TYPE_TEXTS[row.type],
                    ENCODING_TEXTS[row.encoding],
                    COMPRESSION_TEXTS[row.compression],
                ),
                "labels": (row.tags, row.attributes),
                "heat": row.heat,
                "created": row.created,
                "props": row.props,
                "indexed": row.tags,
            }
            for nodes, row in tree.series.items()
        },
        "order": sorted(tree.series),
        "hottest": [text(each) for each in tree.show(_EVERYTHING, heat=True)],
        "devices": [
            (text(each), text(tree.group_of(each) or ()), tree.aligned[each], count)
            for each, count in sorted(devices.items())
        ],
        "nodes": [
            (text(each), _kind(tree, each))
            for level in (True, False)
            for each in nodes
            if (len(each) == 2) is level
        ],
        "names": sorted({each[-1] for each in nodes if len(each) > 2}),
        "tag keys": sorted(tree.tag_keys()),
        "tags": sorted(tags),
        "counts": [
            [(len(tree.series),)],
            [(len(devices),)],
            [(len(groups),)],
            *[
                [(len({each[: level + 1] for each in nodes if len(each) > level}),)]
                for level in _LEVELS
            ],
        ],
        "by level": [
            [
                (text(each), count)
                for each, count in sorted(tree.count_by_level(_EVERYTHING, level).items())
            ]
            for level in _LEVELS
        ],
        "keys": (sorted(tree.keys), [tree.keys[key] for key in sorted(tree.keys)]),
    }


def _devices(tree: Tree) -> dict[Nodes, int]:
    """How many series each has."""
    return Counter(nodes[:-1] for nodes in tree.series)


def _kind(tree: Tree, nodes: Nodes) -> str:
    if nodes in tree.groups:
        return "STORAGE GROUP"
    if nodes in tree.series:
        return "TIMESERIES"
    if tree.group_of(nodes) is None:
        return "SG INTERNAL"
    return "DEVICE" if nodes in _devices(tree) else "INTERNAL"


def memory_of(tree: Tree) -> int:
    """What a schema takes that was never anything but this tree."""
    schema = Schema()
    for nodes, group in tree.groups.items():
        schema.changes.set_storage_group(nodes, 1)
        if group.ttl is not None:
            schema.changes.set_ttl(nodes, group.ttl, 1)
    for nodes, row in tree.series.items():
        schema.changes.create_series(
            nodes[:-1],
            [nodes[-1]],
            bytes([row.type]),
            bytes([row.encoding]),
            bytes([row.compression]),
            1,
            aligned=row.aligned,
            aliases=[row.alias],
            tags=[row.tags],
            props=[row.props],
            offsets=[0 if row.tags or row.attributes else -1],
        )
    return schema.memory.used
