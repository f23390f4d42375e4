import pytest

from receiver.metadata.model.errors import HistoryGoneError
from receiver.operator.edges.load_rates import RATE_HOURS, LoadRates
from tests.support.node_world import A, B, Clock, Edge, World, path_of, tsfile


@pytest.fixture
def clock():
    return Clock(1_700_000_000.0)


@pytest.fixture
def node(tmp_path, clock):
    with World(tmp_path, clock=clock).node() as node:
        yield node


def test_what_was_loaded_counts_in_its_hour(node, clock):
    rates = LoadRates(node.engine, clock)
    small, large = tsfile("root.sg.d1"), tsfile("root.sg.d1", first=50, points=500)
    edge = Edge(node, uuid=A)
    edge.round({path_of(1): small})
    clock.now += 3600
    edge.round({path_of(2): large})
    assert rates.follow()
    found = rates.of(A)
    assert len(found) == RATE_HOURS
    assert found[-2:] == (len(small), len(large))
    assert sum(found) == len(small) + len(large)
    assert sum(rates.of(B)) == 0


def test_what_comes_later_is_taken_in_by_the_next_look(node, clock):
    rates = LoadRates(node.engine, clock)
    assert rates.follow()
    Edge(node, uuid=A).round({path_of(1): tsfile()})
    assert sum(rates.of(A)) == 0
    assert rates.follow()
    assert rates.follow()
    assert sum(rates.of(A)) == len(tsfile())


def test_a_look_takes_a_while_and_the_next_one_goes_on(node, clock):
    edge = Edge(node, uuid=A)
    for n in range(1, 6):
        edge.round({path_of(n): tsfile("root.sg.d1", first=n * 10)})
    ticks = iter(range(10_000))
    rates = LoadRates(node.engine, clock, monotonic=lambda: next(ticks))
    looks = 1
    while not rates.follow(patience=1.0):
        looks += 1
    assert looks > 3
    with node.engine.reading() as state:
        assert sum(rates.of(A)) == state.file_table.totals(A).size


def test_after_a_day_nothing_is_told_or_kept(node, clock):
    rates = LoadRates(node.engine, clock)
    Edge(node, uuid=A).round({path_of(1): tsfile()})
    rates.follow()
    clock.now += RATE_HOURS * 3600
    assert sum(rates.of(A)) == 0
    rates.follow()
    assert rates._hours == {}


def test_a_history_that_went_on_is_read_from_where_it_begins(node, clock, monkeypatch):
    rates = LoadRates(node.engine, clock)
    Edge(node, uuid=A).round({path_of(1): tsfile()})

    def gone(_):
        raise HistoryGoneError("gone")

    with monkeypatch.context() as patched:
        patched.setattr(node.engine, "log_since", gone)
        assert not rates.follow()
    assert rates.follow()
