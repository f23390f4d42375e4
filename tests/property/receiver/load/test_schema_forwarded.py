"""What one receiver tells of its changes makes another the same, whenever it is asked."""

import tempfile
from pathlib import Path

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from common.formats.schemaitems import Altered, Dropped, Group, SeriesItem, encode_items, read_items
from receiver.load.schema.task_schema import apply_items
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.errors import RefusedCommitError
from receiver.scope import Scope
from receiver.transfer.schemachanges import SchemaReader
from tests.support import tiers
from tests.support.metadata import A, seen

paths = st.sampled_from([f"root.a.{d}.{s}" for d in ("d", "e") for s in ("s", "t", "u")])
aliases = st.sampled_from([None, "x", "y", "z"])
labels = st.dictionaries(st.sampled_from(["k", "l"]), st.sampled_from(["1", "2"]))
made = st.builds(
    SeriesItem,
    path=paths,
    type=st.sampled_from([1, 3]),
    encoding=st.just(0),
    compression=st.just(1),
    alias=aliases,
    tags=labels,
)
altered = st.builds(Altered, path=paths, alias=aliases, tags=labels)
dropped = st.builds(Dropped, path=paths)
wild = st.sampled_from(["root.a.d.*", "root.**.s", "root.a.**"]).map(records.SeriesDeleted)
events = st.lists(made | altered | dropped | wild | st.just("forward"), max_size=12)


def told(engine):
    return [
        msgspec.structs.replace(each, tags_at=-1) if isinstance(each, SeriesItem) else each
        for each in SchemaReader(engine).every(limit=2)
    ]


def forward(reader, to, after, limit):
    """Bring one engine up to another, as the blocks of a task would; the new position."""
    page = reader.page(after, None, limit)
    assert page.after == after
    items = list(page.items)
    while page.next is not None:
        page = reader.page(after, page.next, limit)
        items += page.items
    through = [item for _, item in read_items(encode_items(items))]
    change = apply_items(to, through, A, Scope(()))
    assert change.failed == []
    return page.commit


@settings(max_examples=tiers.examples(25))
@given(events, st.integers(1, 4))
def test_changes_that_are_forwarded_make_both_the_same(history, limit):
    with (
        tempfile.TemporaryDirectory() as place,
        Engine.open(Path(place) / "one") as one,
        Engine.open(Path(place) / "two") as two,
    ):
        two.commit([seen(A)])
        apply_items(one, [Group(path="root.a", ttl=9)], None, Scope(()))
        reader, position = SchemaReader(one), 0
        for event in [*history, "forward"]:
            if event == "forward":
                position = forward(reader, two, position, limit)
                assert told(two) == told(one)
            elif isinstance(event, records.SeriesDeleted):
                try:
                    one.commit([event])
                except RefusedCommitError:
                    continue  # nothing matches
            else:
                apply_items(one, [event], None, Scope(()))
