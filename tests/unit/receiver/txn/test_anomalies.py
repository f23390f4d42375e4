"""The published anomalies (Berenson et al., Adya, and Hermitage's list), each as two transactions.

None but write skew happens: that one is allowed, and the page on transactions says so.
"""

import pytest

from receiver.metadata.engine import Engine
from receiver.metadata.model.errors import KeyMissingError
from receiver.metadata.sql.executing import execute
from receiver.txn.errors import WriteConflictError
from receiver.txn.txn_manager import TxnManager


@pytest.fixture
def engine(tmp_path):
    with Engine.open(tmp_path, background=False) as engine:
        engine.set_storage_group("root.sg")
        engine.create_series("root.sg.d.a", "INT32")
        yield engine


@pytest.fixture
def txns(engine):
    manager = TxnManager(engine)
    with manager.transaction() as txn:
        txn.keys.save("x", "10")
        txn.keys.save("y", "20")
    return manager


def shown(target, question="show timeseries"):
    return [row[0] for row in execute(target, question)]


def test_no_dirty_write_the_first_committer_wins_and_the_other_is_told_the_row(txns):
    one, two = txns.begin(), txns.begin()
    one.keys.save("x", "11")
    two.keys.save("x", "12")
    two.keys.save("y", "22")
    two.commit()
    with pytest.raises(WriteConflictError, match="'x'") as caught:
        one.commit()
    assert (caught.value.extra["table"], caught.value.extra["key"]) == ("key", "x")
    assert one.state == "rolled back"
    assert txns.begin().keys.load_with_prefix("") == {"x": "12", "y": "22"}


def test_no_dirty_read_and_no_aborted_read(txns, engine):
    one, two = txns.begin(), txns.begin()
    one.keys.save("x", "101")
    one.database.create_series("root.sg.d.b", "INT32")
    assert two.keys.load("x") == "10"
    assert shown(two.database) == shown(engine) == ["root.sg.d.a"]
    one.rollback()
    assert two.keys.load("x") == "10"
    assert shown(two.database) == shown(engine) == ["root.sg.d.a"]


def test_no_intermediate_read(txns):
    one, two = txns.begin(), txns.begin()
    one.keys.save("x", "101")
    assert two.keys.load("x") == "10"
    one.keys.save("x", "11")
    one.commit()
    assert two.keys.load("x") == "10"
    assert txns.begin().keys.load("x") == "11"


def test_no_circular_information_flow(txns):
    one, two = txns.begin(), txns.begin()
    one.keys.save("x", "11")
    two.keys.save("y", "22")
    assert (one.keys.load("y"), two.keys.load("x")) == ("20", "10")
    one.commit()
    two.commit()


def test_no_vanishing_of_what_was_observed(txns):
    one, two, three = txns.begin(), txns.begin(), txns.begin()
    one.keys.save("x", "11")
    one.keys.save("y", "19")
    one.commit()
    with pytest.raises(WriteConflictError):  # told at once: it cannot win any more
        two.keys.save("x", "12")
    assert (three.keys.load("x"), three.keys.load("y")) == ("10", "20")
    with pytest.raises(WriteConflictError):
        two.commit()
    assert (three.keys.load("x"), three.keys.load("y")) == ("10", "20")


def test_no_lost_update(txns):
    one, two = txns.begin(), txns.begin()
    for txn in (one, two):
        txn.keys.save("x", str(int(txn.keys.load("x")) + 1))
    one.commit()
    with pytest.raises(WriteConflictError):
        two.commit()
    assert txns.begin().keys.load("x") == "11"


def test_no_read_skew(txns, engine):
    one = txns.begin()
    assert one.keys.load("x") == "10"
    with txns.transaction() as two:
        two.keys.save("x", "12")
        two.keys.save("y", "18")
    assert one.keys.load("y") == "20"
    engine.set_ttl("root.sg", 5)
    assert execute(one.database, "show ttl").fetch() == [("root.sg", None)]


def test_no_phantom(txns, engine):
    one = txns.begin()
    assert one.keys.load_with_prefix("") == {"x": "10", "y": "20"}
    assert execute(one.database, "count timeseries").fetch() == [(1,)]
    with txns.transaction() as two:
        two.keys.save("z", "30")
        two.database.create_series("root.sg.d.b", "INT32")
    assert one.keys.load_with_prefix("") == {"x": "10", "y": "20"}
    assert execute(one.database, "count timeseries").fetch() == [(1,)]
    one.database.create_series("root.sg.d.c", "INT32")
    assert shown(one.database) == ["root.sg.d.a", "root.sg.d.c"]
    with pytest.raises(KeyMissingError):
        one.keys.load("z")


def test_write_skew_is_allowed(txns):
    one, two = txns.begin(), txns.begin()
    for txn in (one, two):
        assert sum(map(int, txn.keys.load_with_prefix("").values())) == 30
    one.keys.save("x", "-10")
    two.keys.save("y", "-20")
    one.commit()
    two.commit()
    assert txns.begin().keys.load_with_prefix("") == {"x": "-10", "y": "-20"}


def test_a_key_that_comes_under_a_prefix_is_not_removed_unseen(txns):
    one = txns.begin()
    one.keys.multi_save_and_remove_with_prefix({}, ["x"])
    with txns.transaction() as two:
        two.keys.save("x2", "new")
    with pytest.raises(WriteConflictError, match="'x'"):
        one.commit()
    assert txns.begin().keys.load_with_prefix("x") == {"x": "10", "x2": "new"}
