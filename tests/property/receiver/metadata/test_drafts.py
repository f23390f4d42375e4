"""Operations in one commit mean what they mean one after the other.

The rules see what a commit has done so far only as a draft. The same operations as commits of their
own see it committed: both must accept the same, and leave the same.
"""

import copy
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.errors import TsferryError
from receiver.metadata.commit.draft import Draft, examine
from receiver.metadata.commit.touched import Touched
from receiver.metadata.model import records
from receiver.metadata.model.paths import MANY, parse_pattern
from receiver.metadata.query.questions import ShowChildPaths
from tests.support import tiers
from tests.support.committing import ALL, create, do, fresh
from tests.support.metadata import A, load, path, physical, seen
from tests.support.schema_asked import rows

ROOT = parse_pattern("root")

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
    found = [schema.series.describe(row) for row in schema.series.match(ALL)]
    return (
        [(row.nodes, row.ttl) for row in schema.groups.rows()],
        [row._replace(row=0, created=0, tags_at=0) for row in found],
        [schema.index.tags(row.row) for row in found],
        [rows(schema, ShowChildPaths(pattern=each)) for each in (ROOT, ALL)],
        schema.memory.used,
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


tables = st.one_of(
    st.builds(records.FileDeleted, st.just(FILE), st.just("gone")),
    st.builds(records.FileRetired, st.just(FILE)),
    st.builds(records.FileReturned, st.just(FILE)),
    st.builds(records.FileQuarantined, st.just(FILE), st.just("bad")),
    st.builds(records.FileRestored, st.just(FILE)),
    st.builds(records.OwnerSet, st.sampled_from(["root.t.d1", "root.g.a"]), st.none() | st.just(A)),
)
trials = st.lists(st.lists(operations | tables, min_size=1, max_size=3), min_size=2, max_size=5)


def refusal(state, ops):
    try:
        examine(state, ops)
    except TsferryError as error:
        return error
    return None


def questions(draft):
    """What a draft answers of everything that the operations may have touched."""
    nodes = [
        ("root", group, *below)
        for group in "gh"
        for below in [(), *((a,) for a in "abc"), *itertools.product("abc", repeat=2)]
    ]
    schema = draft.schema
    kinds = {each: schema.kind(each) for each in nodes}
    return (
        kinds,
        {each: (schema.type_of(each), schema.alias_of(each)) for each in nodes
         if kinds[each] == "leaf"},
        {each: (schema.group_of(each), schema.group_below(each)) for each in nodes},
        {each: schema.aligned(each) for each in nodes},
        {each: schema.has_series((*each, MANY)) for each in nodes},
    )  # fmt: skip


@settings(max_examples=tiers.examples(200))
@given(st.lists(operations, max_size=4), trials)
def test_a_trial_is_judged_as_its_commit_and_leaves_nothing_if_it_is_refused(before, trials):
    state = start(before)
    draft, taken = Draft(state), []
    for ops in trials:
        expected, before = refusal(state, [*taken, *ops]), questions(draft)
        found = draft.attempt(ops)
        assert (type(found), str(found)) == (type(expected), str(expected))
        if found is None:
            taken += ops
            fresh_one = Draft(state)
            fresh_one.take(taken)
            assert questions(draft) == questions(fresh_one)
        else:
            assert questions(draft) == before


@settings(max_examples=tiers.examples(100))
@given(st.lists(operations, max_size=4), trials)
def test_a_trial_of_trials_gives_back_all_of_them(before, trials):
    draft = Draft(start(before))
    draft.attempt(trials[0])
    before = questions(draft)

    def fail():
        with draft.all_or_nothing():
            for ops in trials[1:]:
                draft.attempt(ops)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert questions(draft) == before


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
