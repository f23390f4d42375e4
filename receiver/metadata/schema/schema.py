r"""The tree with time, as the state applies commits to it and questions look at it.

Every method is called with the engine's lock held (`Engine.reading`, or the committer), and none
keeps it for long: what may be large is asked for in pages (`after`, `limit`). What is applied was
validated before; nothing here refuses. The same operations give the same answers, whatever was
asked, collected or restarted between them.

    schema = Schema()
    schema.set_storage_group(("root", "turbine"), ts=100)
    schema.create_series(("root", "turbine", "d1"), ["s1"], b"\3", b"\2", b"\1", ts=200)
    row = schema.find_series(("root", "turbine", "d1", "s1"), at=250)
    print(schema.series(row, at=250))

The parts: `tree` (nodes in columns, with `names` and `hashindex`), `tagindex`, `heat`, `columns`
(growing arrays, values with versions), `history` (what ended, until it is collected), `tables` (all
of them together, checkpoint and collection), and on top of them `changes` (operations, with
`blocks`), `describing` (rows as values), `looking` (one path), `listing` (patterns, with `walk`).
"""

from __future__ import annotations

from receiver.metadata.model import records
from receiver.metadata.model.paths import Nodes, parse_stored
from receiver.metadata.schema.changes import props_text
from receiver.metadata.schema.listing import Listing
from receiver.metadata.schema.memory import ALIAS_BYTES, INNER_BYTES, LEAF_BYTES, TAG_BYTES

__all__ = ["Schema"]


class Schema(Listing):
    """Storage groups, devices, series, aliases, TTL, tags and heat, each as of any commit."""

    def cost_of(self, op: records.Op) -> int:
        """Bytes by which `memory` grows with an operation, at least nearly, and at most those."""
        match op:
            case records.SeriesCreated():
                return self._cost_of_created(op)
            case records.SeriesLoaded():
                return sum(self._cost_of_loaded(device) for device in op.devices)
            case records.StorageGroupSet():
                return self._cost_of_nodes(parse_stored(op.path))
            case records.AliasSet(alias=str(alias)):
                return ALIAS_BYTES + _length(alias)
            case records.TagsSet():
                return self._cost_of_tags(op)
            case _:
                return 0

    def _cost_of_nodes(self, nodes: Nodes) -> int:
        cost, known = 0, len(nodes)
        while known > 1 and self.tree.find_inner(nodes[:known]) < 0:
            known -= 1
            cost += INNER_BYTES + _length(nodes[known])
        return cost

    def _cost_of_created(self, op: records.SeriesCreated) -> int:
        cost = self._cost_of_nodes(parse_stored(op.device))
        cost += sum(LEAF_BYTES + _length(name) for name in op.names)
        cost += sum(ALIAS_BYTES + _length(alias) for alias in op.aliases or () if alias is not None)
        cost += sum(_tag_bytes(own) for own in op.tags or ())
        return cost + sum(_length(props_text(own)) for own in op.props or () if own)

    def _cost_of_loaded(self, device: records.LoadedDevice) -> int:
        nodes = parse_stored(device.device)
        missing = self.missing(nodes, device.names)
        cost = sum(LEAF_BYTES + _length(device.names[i]) for i in missing)
        return cost + self._cost_of_nodes(nodes)

    def _cost_of_tags(self, op: records.TagsSet) -> int:
        row = self.find_series(parse_stored(op.path))
        before = self.tags_of(row) if row >= 0 else {}
        return max(0, _tag_bytes(op.tags) - _tag_bytes(before))


def _length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _tag_bytes(tags: dict[str, str]) -> int:
    return sum(TAG_BYTES + _length(value) for value in tags.values())
