"""Tables put together again from their rows are as they were."""

from common.wire import Result
from receiver.metadata.model import records
from receiver.metadata.state.state import State
from tests.support.committing import do, fresh
from tests.support.metadata import A, B, load, path, physical, plain, seen, token


def restored(state):
    """As a checkpoint does it: rows, then the orders that rows do not tell."""
    other = State(state.schema, state.keys)
    other.uuid, other.newest = state.uuid, state.newest
    for row in state.senders.values():
        other.sender_table.restore(row)
    for row in state.tokens.values():
        other.token_table.restore(row)
    for device, row in state.owners.items():
        other.owner_table.restore(device, row)
    for row in state.files.values():
        other.file_table.restore(row)
    other.file_table.restore_orders(*state.file_table.orders())
    for row in state.task_table:
        other.task_table.restore(row)
    for row in state.quarantine.values():
        other.quarantine_table.restore(row)
    for row in state.uploaded_table.rows.values():
        other.uploaded_table.restore(row)
    for row in state.schema_positions.values():
        other.position_table.restore(row)
    return other


def test_all_that_a_caller_sees_comes_back():
    state = fresh()
    do(state, seen(), seen(B), token(), token("t2", role="sender", sender=A))
    names = [path(f"{each}-1-0") for each in range(8)]
    for tag, name in enumerate(names):
        do(state, load(name, tag, devices={"root.t.d1": (1, 9), f"root.t.d{tag}": None}))
    phys = [physical(name, tag) for tag, name in enumerate(names)]
    do(state, records.FileDeleted(phys[3], "gone"), records.FileDeleted(phys[1], "expired"))
    do(state, records.FileQuarantined(phys[4], "bad"), records.FileQuarantined(phys[2], "bad"))
    do(state, records.FileRetired(phys[5]))
    do(state, records.FileQuarantined(phys[6], "bad"), records.FileRetired(phys[6]))
    do(state, load(names[1], 9))
    do(state, records.QuarantinePut(A, path(), "01", 1, False, "no space"))
    do(state, records.TaskDone(A, "01" * 16, [records.FileOutcome("p", Result.LOADED)]))
    do(state, records.TaskDone(A, "02" * 16, []), records.OwnerSet("root.t.d0", B, "why"))
    do(state, records.SchemaSynced(A, "log", 5, 1, [("1,x", "no")], 1))
    for each in (phys[0], phys[3], phys[7]):
        do(state, records.FileUploaded(each, 1, state.files[each].size, "etag=00"))
    do(state, records.FileForgotten(phys[3]))
    do(state, records.FileUploaded(phys[7], 1, state.files[phys[7]].size, "", "00"))
    do(state, records.FileVerified([phys[0], phys[5], phys[7]]))
    do(state, records.ResourceNoted(phys[7], records.ResourceMeta(8, "00")))
    other = restored(state)
    assert plain(other) == plain(state)
    assert other.file_table.verified(A) == state.file_table.verified(A) == 3
    assert other.schema_positions == state.schema_positions
    assert other.sender_table.of_directory(state.senders[A].directory) == state.senders[A]
    for each in (state, other):  # and both go on alike
        do(each, records.FileRestored(phys[2]), records.FileDeleted(phys[0], "operator"))
        do(each, records.TokenRevoke("t1"), records.QuarantineDrop(A, path(), "01"))
    assert plain(other) == plain(state)


def test_a_row_of_the_previous_version_is_not_registered():
    state = fresh()
    do(state, seen())
    do(state, load())
    assert [row.registered for row in state.files.values()] == [False]
