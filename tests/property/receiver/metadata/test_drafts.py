"""Operations in one commit mean what they mean one after the other.

The rules see what a commit has done so far only as a draft. The same operations as commits of their
own see it committed: both must accept the same, and leave the same.
"""

import copy

from hypothesis import given, settings
from hypothesis import strategies as st

from common.errors import TsferryError
from receiver.metadata.commit.rules import examine
from receiver.metadata.commit.touched import Touched
from receiver.metadata.model import records
from tests.support import tiers
from tests.support.committing import ALL, create, do, fresh
from tests.support.metadata import load, path, physical, seen

names = st.sampled_from(["a", "b", "c"])
devices = st.lists(names, max_size=2).map(lambda nodes: ".".join(["root", "g", *nodes]))
other_devices = st.sampled_from(["root.h", "root.h.a", "root.h.a.b", "root"])
aliases = st.none() | names
groups = st.sampled_from(["root.g", "root.h", "root.h.a", "root.g.a", "root.i"])
FILE = physical(path(), 1)


@st.composite
def creations(draw):
    own = draw(st.lists(names, min_size=1, max_size=2))
    return create(
        draw(devices | other_devices), *own, type=draw(st.sampled_from([1, 2])),
        aliases=[draw(aliases) for _ in own], aligned=draw(st.booleans()),
    )  # fmt: skip


@st.composite
def loads(draw):
    parts = []
    for device in draw(st.lists(devices, min_size=1, max_size=2)):
        own = draw(st.lists(names, min_size=1, max_size=2))
        codes = bytes(draw(st.sampled_from([1, 2])) for _ in own)
        columns = (codes, bytes(len(own)), bytes(len(own)), [5] * len(own))
        parts.append(records.LoadedDevice(device, draw(st.booleans()), own, *columns))
    return records.SeriesLoaded(FILE, parts)


series = st.tuples(devices, names).map(".".join)
patterns = series | st.sampled_from(
    ["root.**", "root.g.*.b", "root.g.a.**", "root.*.a", "root.g.*"]
)
operations = st.one_of(
    creations(),
    creations(),
    loads(),
    st.builds(records.SeriesDeleted, patterns),
    st.builds(records.AliasSet, series, aliases),
    st.builds(records.TagsSet, series, st.just({"t": "v"}), st.just({})),
    st.builds(records.StorageGroupSet, groups, st.booleans()),
    st.builds(records.StorageGroupDeleted, groups),
    st.builds(records.TtlSet, groups, st.sampled_from([1, None])),
)


def start(ops):
    state = fresh("root.g")
    do(state, seen())
    do(state, load())
    for op in ops:
        attempt(state, op)
    return state


def attempt(state, *ops):
    """The class of the error, None if the commit was taken."""
    try:
        do(state, *ops)
    except TsferryError as error:
        return type(error)
    return None


def content(state):
    """All of the schema but timestamps."""
    schema = state.schema
    found = [schema.series(row) for row in schema.match_series(ALL)]
    return (
        [(row.nodes, row.ttl) for row in schema.storage_groups()],
        [row._replace(row=0, created=0, tags_at=0) for row in found],
        [schema.tags_of(row.row) for row in found],
        schema.match_nodes(ALL),
        schema.memory(),
    )


@settings(max_examples=tiers.examples(400))
@given(st.lists(operations, max_size=4), st.lists(operations, min_size=2, max_size=5))
def test_a_commit_is_taken_if_each_of_its_operations_would_be(before, ops):
    one, many = start(before), start(before)
    singly = None
    for op in ops:
        singly = attempt(many, op)
        if singly is not None:
            break
    assert attempt(one, *ops) == singly
    if singly is None:
        assert content(one) == content(many)


@settings(max_examples=tiers.examples(400))
@given(st.lists(operations, max_size=4), operations, operations)
def test_commits_that_may_share_a_batch_are_right_in_it(before, first, second):
    """What was checked against the state before the first holds after it, too."""
    state, after = start(before), start(before)
    try:
        one, two = examine(state, [first]), None
        two = examine(state, [second])
    except TsferryError:
        return
    batch = Touched()
    batch.add(one)
    if batch.allows(two):
        assert attempt(after, first) is None
        assert attempt(after, second) is None


def test_a_draft_leaves_the_state_alone():
    state = start([create("root.g.a", "a", "b", aliases=["c", None])])
    before = copy.deepcopy(content(state))
    examine(
        state,
        [
            records.SeriesDeleted("root.g.a.a"),
            create("root.g.a", "c"),
            records.StorageGroupSet("root.h"),
            create("root.h.a", "a"),
            records.StorageGroupDeleted("root.g"),
        ],
    )
    assert content(state) == before
