import msgspec
import pytest

from receiver.metadata.model.records import KeysWritten
from receiver.metadata.state.key_versions import KeyTable


def written(*commits):
    table = KeyTable()
    for ts, removals, saves in commits:
        table.apply(KeysWritten(removals, saves), ts)
    return table


SEED = (
    (100, (), {"A": "1"}),
    (200, (), {"B": "2"}),
    (300, (), {"C": "3"}),
    (400, (), {"A": "10"}),
    (500, ("B",), {}),
    (600, ("C",), {}),
)


def test_every_version_is_there_at_its_time():
    table = written(*SEED)
    assert table.load("B", 450) == "2"
    assert table.load("B", 550) is None
    assert table.load("B") is None
    assert [table.load("A", ts) for ts in (99, 100, 399, 400, 10**9)] == [
        None, "1", "1", "10", "10",
    ]  # fmt: skip
    assert table.load_with_prefix("", 450) == (["A", "B", "C"], ["10", "2", "3"])
    assert table.load_with_prefix("") == (["A"], ["10"])
    assert len(table) == 1


def test_a_key_removed_and_set_by_one_commit_is_set():
    table = written((1, (), {"a": "x", "ab": "y"}), (2, ("a",), {"ab": "z"}))
    assert table.load_with_prefix("a") == (["ab"], ["z"])
    assert table.load_with_prefix("a", 1) == (["a", "ab"], ["x", "y"])
    assert table.changed("a") == table.changed("ab") == 2
    assert table.changed("b") == 0


def test_kept_versions_end_with_the_history():
    table = KeyTable()
    for ts in range(1, 1001):
        table.apply(KeysWritten((), {"hot": str(ts), f"once/{ts}": "x"}), ts)
        if ts > 10:
            table.apply(KeysWritten((f"once/{ts - 10}",), {}), ts)
        table.collect(ts - 5)
    # The newest ten, and the removals of the last five.
    assert table.versions <= 10 + 6 * 2 + 6
    assert table.load("hot", 996) == "996"
    assert table.load("hot") == "1000"


def test_what_the_history_reaches_to_stays():
    table = written(*SEED)
    assert table.collect(450) == 1
    assert table.load("B", 450) == "2"
    assert table.load("A", 450) == "10"
    assert table.load("C", 599) == "3"
    table.collect(500)
    assert table.load("B", 500) is None
    assert table.load("C", 599) == "3"
    table.collect(10_000)
    assert table.versions == 1
    assert table.collect(10_000) == 0


def test_a_key_that_came_back_keeps_no_trace_of_its_removal():
    table = written((1, (), {"a": "x"}), (2, ("a",), {}), (9, (), {"a": "y"}))
    table.collect(5)
    assert table.versions == 1
    assert table.load("a", 5) is None
    assert table.load("a", 9) == "y"


def test_collecting_is_done_in_steps():
    table = KeyTable()
    for ts in range(1, 102):
        table.apply(KeysWritten((), {"a": str(ts)}), ts)
    steps = 0
    while table.collect(1000, budget=30) == 30:
        steps += 1
    assert steps == 3
    assert table.versions == 1


def test_a_thawed_table_is_the_one_that_was_frozen():
    table = written(*SEED, (700, (), {"B": "20"}))
    frozen = table.freeze()
    table.apply(KeysWritten(("",), {"later": "x"}), 800)
    table.collect(900)
    thawed = KeyTable.thaw(dict(frozen.sections()))
    for ts in (None, *range(50, 800, 50)):
        assert thawed.load_with_prefix("", ts) == written(
            *SEED, (700, (), {"B": "20"})
        ).load_with_prefix("", ts)
    assert len(thawed) == 2
    thawed.collect(900)
    assert thawed.versions == 2


def test_a_large_table_is_frozen_in_several_sections():
    table = written((1, (), {str(number): "x" for number in range(5000)}))
    sections = dict(table.freeze().sections())
    assert len(sections) == 3
    assert KeyTable.thaw(sections).load_with_prefix("") == table.load_with_prefix("")
    assert len(KeyTable.thaw(dict(KeyTable().freeze().sections()))) == 0


def test_a_damaged_section_is_no_table():
    with pytest.raises(msgspec.MsgspecError):
        KeyTable.thaw({"0": b"\x91\x01"})
    with pytest.raises(msgspec.MsgspecError):
        KeyTable.thaw({"0": b"\x91\x92\xa1a\x90"})
