"""What a draft says of operations is what a commit of them would say; a refusal leaves nothing."""

from receiver.metadata.commit.draft import Draft, examine
from receiver.metadata.model import records
from receiver.metadata.model.errors import MemoryLimitError, SchemaConflictError, SeriesExistsError
from tests.support.committing import create, do, fresh
from tests.support.metadata import load, path, seen


def start():
    state = fresh("root.t")
    do(state, seen())
    return state


def with_series(number, *names, type=1):
    """A file with series of one device."""
    op = load(path(f"{number}-{number}-0"), number, devices={})
    size = len(names)
    columns = (bytes([type]) * size, bytes(size), bytes(size), [1] * size)
    return [op, records.SeriesLoaded(op.physical, [_device("root.t.d1", names, *columns)])]


def _device(device, names, *columns):
    return records.LoadedDevice(device, False, names, *columns)


def test_what_was_taken_counts_for_what_follows():
    draft = Draft(start())
    assert draft.attempt([create("root.t.d1", "s1")]) is None
    assert isinstance(draft.attempt([create("root.t.d1", "s1")]), SeriesExistsError)
    assert draft.attempt([records.SeriesDeleted("root.t.d1.s1")]) is None
    assert draft.attempt([create("root.t.d1", "s1", type=3)]) is None


def test_of_what_is_refused_nothing_stays():
    draft = Draft(start())
    bad = [create("root.t.d1", "s1"), *with_series(1, "s1", type=3)]
    assert isinstance(draft.attempt(bad), SchemaConflictError)
    assert draft.schema.kind(("root", "t", "d1")) is None
    assert draft.attempt(with_series(1, "s1", type=3)) is None


def test_series_that_two_files_of_a_commit_make_are_counted_once():
    """Or a task whose files make the same series would be refused for ever."""
    state = start()
    names = [f"s{number}" for number in range(50)]
    one, two = with_series(1, *names), with_series(2, *names)
    state.max_memory = state.schema.memory.used + examine_cost(one)
    assert examine(state, [*one, *two]).cost == examine_cost(one)
    draft = Draft(state)
    assert draft.attempt(one) is None
    assert draft.attempt(two) is None
    refused = draft.attempt(with_series(3, "another"))
    assert isinstance(refused, MemoryLimitError)
    assert refused.extra["used"] == state.max_memory
    do(state, *one, *two)
    assert state.schema.memory.used <= state.max_memory


def examine_cost(ops):
    state = start()
    state.max_memory = 1 << 40
    return examine(state, ops).cost


def test_what_is_given_back_needs_no_memory():
    state = start()
    one = with_series(1, *"abc")
    state.max_memory = state.schema.memory.used + examine_cost(one)
    draft = Draft(state)
    assert isinstance(draft.attempt([*one, create("root.t.d1", "a")]), SeriesExistsError)
    assert draft.attempt(one) is None
