"""The schema as an engine shows it, and as the model has it, in values that compare."""

from __future__ import annotations

from typing import Any

from receiver.metadata.engine import Engine
from receiver.metadata.model.paths import parse_pattern
from receiver.metadata.schema import Schema
from tests.support.schema_model import Tree, pattern_of

ALL = parse_pattern("root.**")
EVERYTHING = pattern_of("root.**")


def of_engine(engine: Engine, at: int | None = None) -> dict[str, Any]:
    """Everything, by way of the state; `at` a commit, None the newest."""
    with engine.reading() as state:
        schema = state.schema
        series = {}
        order = []
        for row in schema.match_series(ALL, at):
            found = schema.series(row, at)
            order.append(found.nodes)
            series[found.nodes] = {
                "alias": found.alias,
                "storage_group": found.storage_group,
                "aligned": found.aligned,
                "codes": (found.type, found.encoding, found.compression),
                "created": found.created,
                "heat": found.heat,
                "props": found.props,
                "labels": engine.tags_of(found.tags_at),
                "indexed": schema.tags_of(row, at),
            }
        return {
            "groups": {
                found.nodes: (found.ttl, found.created) for found in schema.storage_groups(at)
            },
            "series": series,
            "order": order,
            "devices": [(found.nodes, found.series) for found in schema.match_devices(ALL, at)],
            "nodes": set(schema.match_nodes(ALL, at)),
            "count": schema.count_series(ALL, at),
            "tags": {
                key: list(schema.tag_values(key, None, at)) for key in schema.tag_keys(None, at)
            },
            "keys": state.keys.load_with_prefix("", at),
        }


def of_model(tree: Tree) -> dict[str, Any]:
    """What `of_engine` must give."""
    devices = tree.devices(EVERYTHING)
    return {
        "groups": {nodes: (group.ttl, group.created) for nodes, group in tree.groups.items()},
        "series": {
            nodes: {
                "alias": row.alias,
                "storage_group": tree.group_of(nodes),
                "aligned": row.aligned,
                "codes": (row.type, row.encoding, row.compression),
                "created": row.created,
                "heat": row.heat,
                "props": row.props,
                "labels": (row.tags, row.attributes),
                "indexed": row.tags,
            }
            for nodes, row in tree.series.items()
        },
        "order": sorted(tree.series),
        "devices": [
            (device, sum(nodes[:-1] == device for nodes in tree.series)) for device in devices
        ],
        "nodes": tree.nodes() - {("root",)},
        "count": len(tree.series),
        "tags": {key: sorted(tree.tag_values(key)) for key in tree.tag_keys()},
        "keys": (sorted(tree.keys), [tree.keys[key] for key in sorted(tree.keys)]),
    }


def memory_of(tree: Tree) -> int:
    """What a schema takes that was never anything but this tree."""
    schema = Schema()
    for nodes, group in tree.groups.items():
        schema.set_storage_group(nodes, 1)
        if group.ttl is not None:
            schema.set_ttl(nodes, group.ttl, 1)
    for nodes, row in tree.series.items():
        schema.create_series(
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
    return schema.memory()
