"""A transaction: what it writes and sees, what it is refused, how it ends."""

import datetime
import threading

import msgspec
import pytest

from common.errors import (
    BusyError,
    FailedSyncError,
    GoneError,
    NoSpaceError,
    ReadOnlyError,
    TooLargeError,
    UsageError,
)
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.alterations import AddTags
from receiver.metadata.model.engine_options import EngineOptions
from receiver.metadata.model.errors import (
    HistoryGoneError,
    RefusedCommitError,
    SeriesExistsError,
    SeriesMissingError,
    StorageGroupHoldsFilesError,
    TagsTooLargeError,
    UnknownOutcomeError,
)
from receiver.metadata.sql.executing import execute
from receiver.txn import txn_store
from receiver.txn.errors import TxnEndedError, TxnMissingError, WriteConflictError
from receiver.txn.txn import TxnState
from receiver.txn.txn_manager import TxnManager
from receiver.txn.txn_numbers import TxnNumbers
from tests.support.metadata import load, path, seen


@pytest.fixture
def engine(tmp_path):
    with Engine.open(tmp_path, background=False) as engine:
        engine.set_storage_group("root.sg")
        engine.create_series("root.sg.d.a", "INT32", tags={"unit": "c"})
        yield engine


@pytest.fixture
def txns(engine):
    return TxnManager(engine)


def shown(target, question="show timeseries"):
    return [row[0] for row in execute(target, question)]


def test_all_of_it_is_one_commit(engine, txns):
    with txns.transaction() as txn:
        txn.database.set_storage_group("root.new")
        txn.database.create_series("root.new.d.s", "FLOAT", alias="al", tags={"k": "v"})
        txn.database.set_ttl("root.new", 5)
        txn.keys.save("k", "v")
        assert shown(engine) == ["root.sg.d.a"]
        assert shown(txn.database) == ["root.new.d.s", "root.sg.d.a"]
        assert shown(txn.database, "show timeseries where k = v") == ["root.new.d.s"]
        (row,) = execute(txn.database, "show timeseries root.new.d.al")
        assert (row[1], row[6]) == ("al", {"k": "v"})
        assert execute(txn.database, "show ttl on root.new").fetch() == [("root.new", 5)]
    assert txn.commit_ts == engine.newest_commit
    (row,) = execute(engine, "show timeseries root.new.**")
    assert (row[1], row[6], row[-1]) == ("al", {"k": "v"}, txn.commit_ts)
    with engine.reading() as state:
        assert state.keys.load("k") == "v"


def test_an_engine_begins_transactions_by_its_manager(engine):
    with pytest.raises(UsageError, match="TxnManager"):
        engine.transaction()
    txns = TxnManager(engine)
    with engine.transaction("me") as txn:
        assert [each.who for each in txns.running()] == ["me"]
        txn.database.create_series("root.sg.d.b", "INT32")
        assert shown(engine) == ["root.sg.d.a"]
    assert shown(engine) == ["root.sg.d.a", "root.sg.d.b"]


def test_it_says_what_it_is(txns):
    txn = txns.begin("me")
    assert 0 < txn.id < 1 << 63
    assert msgspec.msgpack.decode(txn.ctx) == [txn.id, txn.read_ts]
    assert str(txn) == f"transaction {txn.id}, active, 0 operations"
    assert repr(txn) == f"<Txn {txn.id} active read_ts={txn.read_ts} written=0>"
    assert txn.error is None
    (row,) = txns.running()
    assert (row.id, row.who, row.read_ts, row.written) == (txn.id, "me", txn.read_ts, 0)


def test_an_error_in_the_block_rolls_it_back(engine, txns):
    held = []

    def fail():
        with txns.transaction() as txn:
            held.append(txn)
            txn.database.create_series("root.sg.d.b", "INT32")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert held[0].state == "rolled back"
    assert shown(engine) == ["root.sg.d.a"]
    assert not txns.running()


def test_what_is_over_takes_nothing_more(txns):
    txn = txns.begin()
    assert txn.commit() == txn.read_ts
    for use in (txn.commit, txn.rollback, lambda: txn.write([])):
        with pytest.raises(TxnEndedError, match="committed"):
            use()
    other = txns.begin()
    other.rollback()
    other.rollback()
    with pytest.raises(TxnEndedError, match="rolled back"):
        other.commit()


def test_a_statement_that_is_refused_leaves_what_was_written_before(engine, txns):
    with txns.transaction() as txn:
        txn.database.create_series("root.sg.d.b", "INT32")
        with pytest.raises(SeriesExistsError):
            txn.database.create_series("root.sg.d.b", "INT32")
        with pytest.raises(SeriesMissingError):
            txn.database.alter("root.sg.d.zz", AddTags({"k": "v"}))
        with pytest.raises(TagsTooLargeError):
            txn.database.create_series("root.sg.d.c", "INT32", tags={"k": "v" * 999})
    assert shown(engine) == ["root.sg.d.a", "root.sg.d.b"]


def test_own_writes_can_be_altered_and_deleted(engine, txns):
    with txns.transaction() as txn:
        base = txn.database
        base.create_series("root.auto.d.s", "INT32")  # makes its storage group
        base.create_series("root.auto.d.t", "INT32")
        base.alter("root.auto.d.s", AddTags({"k": "v"}))
        base.set_alias("root.auto.d.s", "al")
        assert execute(base, "alter timeseries root.auto.d.al add tags j = w").message
        base.delete_series("root.auto.d.t", "root.sg.**")
        assert shown(base) == ["root.auto.d.s"]
        (row,) = execute(base, "show timeseries")
        assert (row[1], row[6]) == ("al", {"k": "v", "j": "w"})
        base.drop_storage_groups("root.sg")
        assert shown(base, "show storage group") == ["root.auto"]
    assert shown(engine) == ["root.auto.d.s"]
    assert shown(engine, "show storage group") == ["root.auto"]
    (row,) = execute(engine, "show timeseries")
    assert (row[1], row[6]) == ("al", {"k": "v", "j": "w"})


def test_series_that_were_made_meanwhile_are_not_deleted_by_a_pattern(engine, txns):
    txn = txns.begin()
    engine.create_series("root.sg.d.b", "INT32")
    txn.database.delete_series("root.sg.**")
    txn.commit()
    assert shown(engine) == ["root.sg.d.b"]


def test_what_cannot_be_stored_is_refused_at_the_statement(txns):
    txn = txns.begin()
    with pytest.raises(RefusedCommitError, match="cannot be stored"):
        txn.write([records.KeysWritten((), {"k": 1})])
    with pytest.raises(RefusedCommitError, match="cannot be stored"):
        txn.write([records.KeysWritten((), {"k": object()})])
    assert txn.written == 0


def test_a_pattern_among_records_is_refused(txns):
    with pytest.raises(RefusedCommitError, match="pattern"):
        txns.begin().write([records.SeriesDeleted("root.sg.**")])


@pytest.mark.parametrize("meanwhile", ["series", "file", "gone"])
def test_a_storage_group_goes_only_with_what_was_seen_in_it(engine, txns, meanwhile):
    engine.commit([seen()])
    txn = txns.begin()
    txn.database.drop_storage_groups("root.sg")
    if meanwhile == "series":
        engine.create_series("root.sg.d.b", "INT32")
    elif meanwhile == "file":
        engine.commit([load(path("1-1-0", sg="root.sg"), 1, devices={"root.sg.d": (0, 1)})])
    else:
        engine.delete_series("root.sg.d.a")
    with pytest.raises(WriteConflictError):
        txn.commit()
    assert shown(engine, "show storage group") == ["root.sg"]


def test_a_storage_group_goes_although_something_else_is_committed(engine, txns):
    txn = txns.begin()
    txn.database.drop_storage_groups("root.sg")
    engine.create_series("root.other.d.s", "INT32")
    txn.commit()
    assert shown(engine, "show storage group") == ["root.other"]


def test_files_keep_their_storage_group(engine, txns):
    engine.commit([seen(), load(path("1-1-0", sg="root.sg"), 1, devices={"root.sg.d": (0, 1)})])
    txn = txns.begin()
    with pytest.raises(StorageGroupHoldsFilesError):
        txn.database.drop_storage_groups("root.sg")
    with pytest.raises(UsageError):
        txn.database.drop_storage_groups("root.sg", with_data=True)


@pytest.mark.parametrize(
    "other",
    [
        lambda base: base.create_series("root.sg.d.n", "FLOAT"),
        lambda base: base.alter("root.sg.d.a", AddTags({"other": "v"})),
        lambda base: base.set_alias("root.sg.d.a", "al"),
        lambda base: base.delete_series("root.sg.d.a"),
        lambda base: base.set_ttl("root.sg", 7),
    ],
)
@pytest.mark.parametrize("is_first", [False, True])
def test_two_that_change_one_row_do_not_both_commit(engine, txns, other, is_first):
    def work(base):
        base.create_series("root.sg.d.n", "INT32")
        base.set_ttl("root.sg", 5)
        base.alter("root.sg.d.a", AddTags({"k": "v"}))

    txn = txns.begin()
    if is_first:
        work(txn.database)
        other(engine)
        with pytest.raises(WriteConflictError, match=r"root\.sg"):
            txn.commit()
    else:
        other(engine)
        with pytest.raises(WriteConflictError, match=r"root\.sg"):
            work(txn.database)
        with pytest.raises(WriteConflictError):
            txn.commit()
    assert isinstance(txn.error, WriteConflictError)


def test_a_series_made_in_a_storage_group_that_is_not_seen_is_a_conflict(engine, txns):
    txn = txns.begin()
    engine.set_storage_group("root.late")
    with pytest.raises(WriteConflictError, match=r"root\.late"):
        txn.database.create_series("root.late.d.s", "INT32")


def test_owners_and_files_take_part(engine, txns):
    engine.commit([seen()])
    with engine.reading() as state:
        (sender,) = state.senders
    engine.commit([records.OwnerSet("root.sg.d", sender, "first")])
    file = load(path("1-1-0", sg="root.sg"), 1, devices={"root.sg.d": (0, 1)})
    one, two, three = txns.begin(), txns.begin(), txns.begin()
    one.write([records.OwnerSet("root.sg.d", None, "released")])
    two.write([records.OwnerSet("root.sg.d", None, "released too")])
    three.write([file])
    assert [row[-1] for row in execute(one.database, "show devices")] == [None]
    assert [row[-1] for row in execute(three.database, "show devices")] == [sender]
    engine.commit([file])
    one.commit()
    for each, tables in ((two, {"owner"}), (three, {"file", "path"})):
        with pytest.raises(WriteConflictError) as caught:
            each.commit()
        assert caught.value.extra["table"] in tables


def test_series_of_a_file_that_it_loads_are_seen_and_can_be_altered(engine, txns):
    engine.commit([seen()])
    name = path("1-1-0", sg="root.sg")
    file = load(name, 1, devices={"root.sg.e": (0, 9)})
    one = records.LoadedDevice("root.sg.e", False, ("s",), b"\3", b"\x08", b"\1", (9,))
    with txns.transaction() as txn:
        txn.database.create_series("root.sg.d.b", "INT32")
        txn.write([file, records.SeriesLoaded(file.physical, [one])])
        assert [row[8] for row in execute(txn.database, "show timeseries root.sg.e.**")] == [9]
        txn.database.alter("root.sg.e.s", AddTags({"k": "v"}))
        assert shown(txn.database, "show timeseries where k = v") == ["root.sg.e.s"]
        assert shown(engine) == ["root.sg.d.a"]
    assert shown(engine) == ["root.sg.d.a", "root.sg.d.b", "root.sg.e.s"]
    assert shown(engine, "show timeseries where k = v") == ["root.sg.e.s"]
    assert shown(engine, "show files") == [file.physical]


def test_the_past_is_that_of_its_own_time(engine, txns):
    before = engine.newest_commit
    engine.create_series("root.sg.d.b", "INT32")
    txn = txns.begin()
    engine.create_series("root.sg.d.c", "INT32")
    assert shown(txn.database) == ["root.sg.d.a", "root.sg.d.b"]
    assert [row[0] for row in execute(txn.database, "show timeseries", at=before)] == [
        "root.sg.d.a"
    ]
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
    assert len(list(execute(txn.database, "show timeseries", at=later))) == 2
    txn.database.create_series("root.sg.d.d", "INT32")
    assert [row[0] for row in execute(txn.database, "show timeseries", at=before)] == [
        "root.sg.d.a"
    ]
    assert len(list(execute(txn.database, "show timeseries", at=later))) == 3


def test_files_tables_and_tasks_are_shown_as_they_were_when_it_began(engine, txns):
    engine.commit([seen()])
    first = load(path("1-1-0", sg="root.sg"), 1, devices={"root.sg.e": (0, 9)})
    engine.commit([first])
    txn = txns.begin()
    engine.commit([load(path("2-2-0", sg="root.sg"), 2, devices={"root.sg.e": (20, 29)})])
    txn.database.create_series("root.sg.d.b", "INT32")
    assert shown(txn.database, "show files") == [first.physical]
    assert [row[3] for row in execute(txn.database, "show partitions")] == [1]
    assert [row[3] for row in execute(txn.database, "show tables")] == [1]
    assert [row[4] for row in execute(txn.database, "show tablets")] == [1]
    for statement in ("show tasks", "show nodes", "show cache slots"):
        assert shown(txn.database, statement) == []
    pages = execute(txn.database, "show files", fetch_size=1)
    txn.database.create_series("root.sg.d.c", "INT32")
    assert [row[0] for row in pages] == [first.physical]
    assert len(shown(engine, "show files")) == 2


def test_what_it_has_changed_of_them_itself_is_refused_by_name(engine, txns):
    engine.commit([seen()])
    file = load(path("1-1-0", sg="root.sg"), 1, devices={"root.sg.e": (0, 9)})
    engine.commit([file])
    with_ttl, with_file = txns.begin(), txns.begin()
    with_ttl.database.set_ttl("root.sg", 9)
    assert shown(with_ttl.database, "show files") == [file.physical]
    with pytest.raises(UsageError, match=r"show tables: the transaction has changed.*TtlSet"):
        execute(with_ttl.database, "show tables")
    with_file.write([records.FileDeleted(file.physical, "operator")])
    with pytest.raises(UsageError, match=r"show files: .*FileDeleted"):
        execute(with_file.database, "show files")
    assert shown(with_file.database) == ["root.sg.d.a"]


def test_who_has_written_keys_sees_no_commit_of_the_same_millisecond(tmp_path):
    with Engine.open(tmp_path / "still", clock=lambda: 1_700_000_000.0, background=False) as engine:
        engine.set_storage_group("root.sg")
        txn = TxnManager(engine).begin()
        txn.keys.save("a", "1")
        txn.keys.save("b", "1")
        engine.create_series("root.sg.d.later", "INT32")
        assert engine.newest_commit == txn.read_ts + 1
        assert shown(txn.database) == []


def test_an_answer_ends_when_more_is_written(txns):
    txn = txns.begin()
    txn.database.create_series("root.sg.d.b", "INT32")
    answer = execute(txn.database, "show timeseries", fetch_size=1)
    assert len(answer.fetch()) == 1
    txn.database.create_series("root.sg.d.c", "INT32")
    with pytest.raises(GoneError):
        answer.fetch()


def test_the_write_set_is_bounded(txns, monkeypatch):
    monkeypatch.setattr(txn_store, "MOST_OPS", 2)
    txn = txns.begin()
    txn.keys.save("a", "1")
    txn.keys.save("b", "2")
    with pytest.raises(TooLargeError):
        txn.keys.save("c", "3")
    txn.commit()


def test_many_statements_beside_many_commits_are_one_commit(engine, txns):
    with txns.transaction() as txn:
        for number in range(12):
            txn.database.create_series(f"root.sg.e.s{number}", "INT32")
            engine.create_series(f"root.sg.f.s{number}", "INT32")
        with pytest.raises(SeriesExistsError):
            txn.database.create_series("root.sg.e.s0", "INT32")
    assert len(shown(engine)) == 25


def test_what_is_right_by_what_came_since_alone_is_a_conflict(engine, txns):
    txn = txns.begin()
    engine.delete_series("root.sg.d.a")
    txn.database.create_series("root.sg.d.a.below", "INT32")
    with pytest.raises(WriteConflictError, match="is a series itself"):
        shown(txn.database)
    with pytest.raises(WriteConflictError):
        txn.commit()


def test_a_statement_behind_one_that_was_contradicted_is_refused_at_the_commit(engine, txns):
    txn = txns.begin()
    txn.database.set_storage_group("root.new")
    txn.database.set_ttl("root.new", 5)
    engine.set_storage_group("root.new.below")
    txn.database.create_series("root.new.d.s", "INT32")
    with pytest.raises(WriteConflictError, match=r"root\.new"):
        txn.commit()


# -- ends ------------------------------------------------------------------------------------------


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_what_nobody_uses_is_rolled_back_and_what_is_used_is_not(engine):
    clock = Clock()
    txns = TxnManager(engine, lease=60, clock=clock)
    idle, used = txns.begin(), txns.begin()
    idle.keys.save("a", "1")
    clock.now = 40.0
    used.keys.save("b", "2")
    used.do(lambda: None)
    clock.now = 70.0
    assert [each.id for each in txns.running()] == [used.id]
    with pytest.raises(TxnMissingError):
        txns.get(idle.id)
    with pytest.raises(TxnEndedError, match="60 s"):
        idle.commit()
    assert txns.outcome(idle.id).state is TxnState.ROLLED_BACK
    used.commit()


def test_who_waits_longer_for_an_answer_than_a_lease_still_has_the_transaction(engine):
    clock = Clock()
    txns = TxnManager(engine, lease=60, clock=clock)
    txn = txns.begin()
    txn.keys.save("a", "1")

    def slowly():
        clock.now += 100.0

    txn.do(slowly)
    assert [each.id for each in txns.running()] == [txn.id]
    clock.now += 61.0
    assert txns.running() == []


@pytest.mark.parametrize("bits", [12, 13])
def test_no_number_of_an_id_comes_twice(bits):
    numbers = TxnNumbers(bits)
    found = [numbers.take() for _ in range((1 << bits) - 1)]
    assert sorted(found) == list(range(1, 1 << bits))
    assert found != sorted(found)
    other = TxnNumbers(bits)
    assert found[:100] != [other.take() for _ in range(100)]


def test_numbers_of_ids_are_apart_whatever_threads_take_them():
    numbers, found = TxnNumbers(), []

    def take():
        found.extend([numbers.take() for _ in range(5000)])

    threads = [threading.Thread(target=take) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(set(found)) == len(found) == 20_000


def test_there_are_only_so_many(engine):
    txns = TxnManager(engine, most=1)
    first = txns.begin()
    with pytest.raises(BusyError):
        txns.begin()
    first.rollback()
    txns.begin()


def test_one_begins_and_ends_while_others_read(engine, txns):
    def run() -> None:
        txns.begin().rollback()

    with engine.reading():
        other = threading.Thread(target=run, daemon=True)
        other.start()
        other.join(60)
        assert not other.is_alive()


def test_what_is_committed_and_collected_while_it_begins_leaves_what_it_reads(tmp_path):
    class Pins(dict):
        def setdefault(self, ident, pin):
            engine.set_storage_group("root.meanwhile")
            now[0] += 100
            engine.collect()
            return super().setdefault(ident, pin)

    now = [1_700_000_000.0]
    options = EngineOptions(history=10)
    with Engine.open(
        tmp_path, options=options, clock=lambda: now[0], boot=lambda: now[0], background=False
    ) as engine:
        engine.set_storage_group("root.sg")
        txns = TxnManager(engine, clock=lambda: now[0])
        txns._pins = Pins()
        txn = txns.begin()
        assert engine.oldest_answerable == engine.newest_commit == txn.read_ts
        assert len(shown(txn.database, "show storage group")) == 2


def test_a_series_without_a_storage_group_gets_one_in_its_transaction(engine, txns):
    with txns.transaction() as txn:
        txn.database.create_series("root.new.d.s", "INT32")
        txn.database.create_series("root.new.e.s", "INT32")
        assert shown(txn.database, "show storage group") == ["root.new", "root.sg"]
        assert shown(engine, "show storage group") == ["root.sg"]
    assert shown(engine) == ["root.new.d.s", "root.new.e.s", "root.sg.d.a"]


def test_history_is_kept_for_a_lease_and_no_longer(tmp_path):
    clock, wall = Clock(), Clock()
    wall.now = 1_000_000.0
    options = EngineOptions(history=10)
    with Engine.open(tmp_path, background=False, clock=wall, boot=wall, options=options) as engine:
        txns = TxnManager(engine, lease=60, clock=clock)
        engine.set_storage_group("root.sg")
        txn = txns.begin()
        for each in range(3):
            wall.now += 15
            clock.now += 15
            txn.do(lambda: None)
            engine.set_storage_group(f"root.g{each}")
            engine.collect()
        assert shown(txn.database, "show storage group") == ["root.sg"]
        wall.now += 30
        clock.now += 30
        engine.set_storage_group("root.g9")
        engine.collect()
        with pytest.raises(HistoryGoneError):
            shown(txn.database, "show storage group")


@pytest.mark.parametrize("written", [True, False], ids=["before", "behind"])
def test_what_was_removed_and_is_no_history_any_more_is_not_written_over(tmp_path, written):
    clock, wall = Clock(), Clock()
    wall.now = 1_000_000.0
    options = EngineOptions(history=10)
    with Engine.open(tmp_path, background=False, clock=wall, boot=wall, options=options) as engine:
        txns = TxnManager(engine, lease=60, clock=clock)
        engine.commit([records.KeysWritten([], {"k": "1"})])
        txn = txns.begin()
        assert txn.keys.load("k") == "1"
        if written:
            txn.keys.save("k", "2")
        engine.commit([records.KeysWritten(["k"], {})])
        for each in range(4):
            wall.now += 20
            clock.now += 20
            txn.do(lambda: None)
            engine.commit([records.KeysWritten([], {f"other{each}": "1"})])
            engine.collect()
        assert txn.read_ts < engine.oldest_answerable
        with pytest.raises(WriteConflictError, match="before the kept history"):
            txn.commit() if written else txn.keys.save("k", "2")
        with pytest.raises(TxnEndedError if written else WriteConflictError):
            txn.commit()
        with txns.transaction() as again:
            assert "k" not in again.keys.load_with_prefix("")


def test_a_commit_keeps_the_history_that_it_is_judged_by(tmp_path, monkeypatch):
    clock, wall = Clock(), Clock()
    wall.now = 1_000_000.0
    options = EngineOptions(history=10)
    with Engine.open(tmp_path, background=False, clock=wall, boot=wall, options=options) as engine:
        txns = TxnManager(engine, lease=60, clock=clock)
        engine.commit([records.KeysWritten([], {"k": "1"})])
        txn = txns.begin()
        txn.keys.save("k", "2")
        engine.commit([records.KeysWritten(["k"], {})])
        wall.now += 59
        clock.now += 59
        engine.collect()
        real = engine.commit_judged

        def late(*given):
            wall.now += 9
            clock.now += 9
            engine.commit([records.KeysWritten([], {"other": "1"})])
            engine.collect()
            return real(*given)

        monkeypatch.setattr(engine, "commit_judged", late)
        monkeypatch.setattr("receiver.metadata.commit.recent_commits._MOST_KEYS", 0)
        with pytest.raises(WriteConflictError):
            txn.commit()


# -- what became of it -----------------------------------------------------------------------------


def test_the_outcome_is_the_same_for_ever(tmp_path, engine, txns):
    done, undone, open_ = txns.begin(), txns.begin(), txns.begin()
    done.keys.save("a", "1")
    undone.keys.save("b", "1")
    ts = done.commit()
    undone.rollback()

    def told(manager):
        return [manager.outcome(each.id) for each in (done, undone)]

    assert told(txns) == [(TxnState.COMMITTED, ts), (TxnState.ROLLED_BACK, None)]
    assert txns.outcome(open_.id).state is TxnState.ACTIVE
    engine.close()
    for checkpoints in (False, True, False):
        with Engine.open(tmp_path, background=False) as engine:
            manager = TxnManager(engine)
            assert told(manager) == [(TxnState.COMMITTED, ts), (TxnState.ROLLED_BACK, None)]
            assert manager.outcome(open_.id).state is TxnState.ROLLED_BACK
            if checkpoints:
                engine.checkpoint()


def test_what_is_in_the_log_and_cannot_be_applied_is_not_told_to_be_rolled_back(
    tmp_path, engine, txns, monkeypatch
):
    txn = txns.begin()
    txn.keys.save("a", "1")

    def broken(*_):
        raise ValueError("not like this")

    with monkeypatch.context() as inner:
        inner.setattr("receiver.metadata.state.state.State.apply", broken)
        with pytest.raises(FailedSyncError, match="not like this"):
            txn.commit()
    assert txn.state is TxnState.UNKNOWN
    with pytest.raises(ReadOnlyError):
        txns.outcome(txn.id)
    engine.close()
    with Engine.open(tmp_path, background=False) as engine:
        assert TxnManager(engine).outcome(txn.id).state is TxnState.COMMITTED


def test_a_process_gives_no_id_that_the_one_before_gave(tmp_path, engine, monkeypatch):
    monkeypatch.setattr("receiver.txn.txn_numbers.secrets.randbits", lambda bits: 12345)
    manager = TxnManager(engine)
    with manager.transaction() as first:
        first.keys.save("a", "1")
    undone = manager.begin()
    engine.close()
    with Engine.open(tmp_path, background=False) as engine:
        manager = TxnManager(engine)
        later = [manager.begin() for _ in range(9)]
        assert {first.id, undone.id}.isdisjoint(each.id for each in later)
        for number, each in enumerate(later):
            each.keys.save(f"b{number}", "1")
            each.commit()
        assert manager.outcome(first.id) == (TxnState.COMMITTED, first.commit_ts)
        assert manager.outcome(undone.id).state is TxnState.ROLLED_BACK


def test_of_the_outcomes_the_last_are_kept(tmp_path, engine, txns, monkeypatch):
    monkeypatch.setattr("receiver.metadata.state.tables.txns.KEPT_TXNS", 3)
    ids = []
    for number in range(9):
        with txns.transaction() as txn:
            txn.database.create_series(f"root.sg.d.s{number}", "INT32")
        ids.append(txn.id)
        if number == 5:
            engine.checkpoint()
    forgotten = max(ids[:6])
    for _ in range(2):
        with engine.reading() as state:
            assert list(state.txn_table.rows) == ids[6:]
            assert state.txn_table.forgotten == forgotten
        engine.close()
        engine = Engine.open(tmp_path, background=False)
    engine.close()


def test_a_transaction_is_committed_once(engine, txns):
    txn = txns.begin()
    txn.keys.save("a", "1")
    txn.commit()
    with pytest.raises(RefusedCommitError, match="committed already"):
        engine.commit([records.KeysWritten((), {"a": "2"}), records.TxnCommitted(txn.id)])


def test_what_is_refused_by_the_disk_is_rolled_back(engine, txns, monkeypatch):
    txn = txns.begin()
    txn.keys.save("a", "1")

    def full(*_):
        raise NoSpaceError("full")

    monkeypatch.setattr(engine._committer._appender, "append", full)
    with pytest.raises(NoSpaceError):
        txn.commit()
    assert txns.outcome(txn.id).state is TxnState.ROLLED_BACK


@pytest.mark.parametrize("is_kept", [True, False])
def test_an_unknown_outcome_is_found_out_when_it_is_asked_for(engine, txns, monkeypatch, is_kept):
    txn = txns.begin()
    txn.keys.save("a", "1")
    appender = engine._committer._appender

    def lost(*_):
        raise UnknownOutcomeError("no answer")

    monkeypatch.setattr(appender, "append", lost)
    monkeypatch.setattr(appender, "settle", lambda: is_kept)
    with pytest.raises(UnknownOutcomeError):
        txn.commit()
    assert txn.state is TxnState.UNKNOWN
    outcome = txns.outcome(txn.id)
    assert outcome.state is (TxnState.COMMITTED if is_kept else TxnState.ROLLED_BACK)
    assert txns.outcome(txn.id) == outcome


def test_a_storage_group_that_was_made_anew_since_is_seen_as_it_was(engine, txns):
    engine.set_ttl("root.sg", 5)
    txn = txns.begin()
    engine.delete_storage_group("root.sg")
    engine.set_storage_group("root.sg")
    engine.set_ttl("root.sg", 5)
    txn.database.set_storage_group("root.new")
    assert execute(txn.database, "show ttl on root.sg").fetch() == [("root.sg", 5)]
    assert shown(txn.database) == ["root.sg.d.a"]


def test_an_owner_that_came_since_is_not_seen(engine, txns):
    engine.commit([seen()])
    with engine.reading() as state:
        (sender,) = state.senders
    txn = txns.begin()
    engine.commit([records.OwnerSet("root.sg.d", sender, "later")])
    assert [row[-1] for row in execute(txn.database, "show devices")] == [None]
    txn.database.create_series("root.sg.d.b", "INT32")
    assert [row[-1] for row in execute(txn.database, "show devices")] == [None]
