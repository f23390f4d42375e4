"""Every rule refuses with a message that names the operation, and leaves no trace."""

import msgspec
import pytest

from common.errors import ConflictError
from receiver.metadata.commit.draft import examine
from receiver.metadata.model import records
from receiver.metadata.model.errors import RefusedCommitError
from receiver.metadata.state.state import State
from tests.support.metadata import TASK, A, B, load, path, physical, plain, seen, token

P = path()
PHYS = physical(P, 1)
RESOURCE = records.ResourceMeta(8, "00")
GONE = records.FileDeleted(PHYS, "gone")
UPLOADED = records.FileUploaded(PHYS, 1, load().size, "")


@pytest.fixture
def state():
    state = State()
    state.apply(records.Commit(1, [records.EngineMade("ee" * 16)]))
    return state


def do(state, *ops):
    examine(state, ops)
    state.apply(records.Commit(state.newest + 1, ops))


def refuse(state, match, *ops, error=RefusedCommitError):
    before = plain(state)
    with pytest.raises(error, match=match) as caught:
        examine(state, ops)
    assert plain(state) == before
    return caught.value


def test_the_first_record_is_not_for_callers(state):
    refuse(state, "EngineMade is not for callers", records.EngineMade("ff" * 16))


@pytest.mark.parametrize("uuid", ["", "../other", "AA" * 16, "a" * 31])
def test_a_sender_uuid_is_32_hex_digits(state, uuid):
    refuse(state, "no sender uuid", records.SenderSeen(uuid, "x", "dir"))


def test_a_sender_that_is_known_is_late_after_a_number_of_seconds_or_as_configured(state):
    refuse(state, "is not known", records.LatenessSet(A, 1.0))
    do(state, records.SenderSeen(A, "one", "dir-a"))
    for wrong in (-1.0, float("nan"), float("inf"), 1e10):
        refuse(state, "no number of seconds", records.LatenessSet(A, wrong))
    for late_after in (0.0, 3600.0, None):
        do(state, records.LatenessSet(A, late_after))
        assert state.senders[A].late_after == late_after


def test_a_task_adopts_once_and_before_it_is_done(state):
    task = "01" * 16
    refuse(state, "is not known", records.FilesAdopted(A, task, "/old"))
    do(state, records.SenderSeen(A, "one", "dir-a"))
    adopted, done = records.FilesAdopted(A, task, "/old"), records.TaskDone(A, task, [])
    refuse(state, "no task that is still to be done", records.FilesAdopted(A, "x", "/old"))
    refuse(state, "told of twice", adopted, adopted)
    refuse(state, "no task that is still to be done", done, adopted)
    do(state, adopted, done)
    assert state.adoption_table.rows[A, task].source == "/old"


def test_a_directory_belongs_to_one_sender_and_a_sender_has_one(state):
    do(state, records.SenderSeen(A, "one", "dir-a"))
    refuse(state, "is that of sender", records.SenderSeen(B, "two", "dir-a"))
    refuse(state, "another directory", records.SenderSeen(A, "one", "dir-b"))
    do(state, records.SenderSeen(A, "renamed", "dir-a"))
    assert state.senders[A].label == "renamed"
    assert state.senders[A].first_seen == 2


@pytest.mark.parametrize(
    "op",
    [
        load(),
        records.EpochSet(A, "1.x", None, None, False),
        records.OwnerSet("d", A, "transfer"),
        records.TaskDone(A, TASK, []),
        records.QuarantinePut(A, P, "00", 1, False, "why"),
    ],
)
def test_an_unknown_sender_does_nothing(state, op):
    refuse(state, f"{type(op).__name__}: sender {A} is not known", op)


def test_an_unknown_sender_may_come_in_the_same_commit(state):
    do(state, seen(), load(), records.TaskDone(A, TASK, []))
    assert state.file_table.live(A, P)


def test_a_path_is_loaded_once(state):
    do(state, seen(), load())
    refuse(state, f"{P} is loaded already", load(tag=2, content="other"))
    refuse(state, f"{P} is loaded already", load(tag=2))


def test_a_path_is_loaded_once_within_a_commit(state):
    do(state, seen())
    refuse(state, "is loaded already", load(tag=1), load(tag=2))
    assert state.file_table.held(A, P) is None


@pytest.mark.parametrize("way", [GONE, records.FileRetired(PHYS)])
def test_a_path_is_free_again_after_deletion_or_retirement(state, way):
    do(state, seen(), load())
    refuse(state, "is loaded already", load(tag=2), way)
    do(state, way, load(tag=2, content="new"))
    assert state.file_table.live(A, P).physical == physical(P, 2)


def test_a_quarantined_file_keeps_its_path_until_it_is_deleted(state):
    do(state, seen(), load())
    do(state, records.FileQuarantined(PHYS, "bad"))
    refuse(state, "is loaded already", load(tag=2))
    assert state.file_table.live(A, P) is None
    assert state.file_table.wanted(A)
    do(state, records.FileDeleted(PHYS, "replaced"), load(tag=2))
    assert not state.file_table.wanted(A)


def test_a_physical_name_is_used_once_for_ever(state):
    do(state, seen(), load())
    other = path("2-2-0")
    refuse(state, "is taken", msgspec.structs.replace(load(other), physical=PHYS))
    do(state, GONE)
    refuse(state, "is taken", load())


def test_a_file_stays_in_its_directory(state):
    do(state, seen())
    away = physical(path(part=1), 1)
    refuse(state, "is not in the directory", load(physical=away))


@pytest.mark.parametrize(
    "bad",
    [
        "../../etc/x.tsfile",
        "sequence/root.t/0/0/../x.tsfile",
        "sequence/root.t/0/0/a.tsfile.resource",
        "sequence/root.t/0/0/a\n.tsfile",
        "",
    ],
)
def test_bad_names_never_get_into_the_log(state, bad):
    do(state, seen())
    refuse(state, "FileLoaded: ", load(path=bad))
    refuse(state, "FileLoaded: ", load(physical=bad))
    refuse(state, "QuarantinePut: ", records.QuarantinePut(A, bad, "0", 1, False, "why"))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"size": -1}, "out of range"),
        ({"points": 1 << 63}, "out of range"),
        ({"md5": "123"}, "no MD5"),
        ({"md5": "AB" * 16}, "no MD5"),
        ({"first": 5, "last": 4}, "no range"),
        ({"first": 5, "last": None}, "no range"),
        ({"last": 1 << 63}, "no range"),
        ({"first": 2}, "device root.t.d1 has 1 to 9, the file 2 to 9"),
        ({"first": None, "last": None}, "the file None to None"),
    ],
)
def test_numbers_of_a_file_are_checked(state, change, match):
    do(state, seen())
    refuse(state, match, load(**change))


def test_devices_of_a_file_are_checked(state):
    do(state, seen())
    twice = [records.DeviceRange("d", 1, 2)] * 2
    refuse(state, "device twice", msgspec.structs.replace(load(), devices=twice))
    nameless = [records.DeviceRange("", 1, 2)]
    refuse(state, "without a name", msgspec.structs.replace(load(), devices=nameless))
    half = [records.DeviceRange("d", 1, None)]
    refuse(state, "device d has 1 to None", msgspec.structs.replace(load(), devices=half))


def test_devices_of_a_file_that_comes_back_are_within_it(state):
    do(state, seen(), load())
    do(state, GONE)
    early = [records.DeviceRange("d", load().first - 1, load().last)]
    refuse(state, "device d has", records.FileUndeleted(PHYS, early))
    do(state, records.FileUndeleted(PHYS, load().devices))


def test_a_file_with_a_device_of_another_owner_is_refused_as_a_whole(state):
    do(state, seen(), seen(B), load())
    theirs = load(path("2-2-0"), 2, sender=B, devices={"root.t.new": (1, 2), "root.t.d1": (1, 2)})
    error = refuse(state, "root.t.d1 belongs to another sender", theirs, error=ConflictError)
    assert error.extra == {"device": "root.t.d1", "path": path("2-2-0"), "owner": A}
    assert A not in error.message, "whose it is, only the operator sees"
    assert "root.t.new" not in state.owners


def test_two_files_of_a_commit_cannot_claim_for_two_senders(state):
    do(state, seen(), seen(B))
    second = load(path("2-2-0"), 2, sender=B)
    refuse(state, "belongs to another", load(), second, error=ConflictError)
    assert not state.owners


def test_a_transfer_counts_within_its_commit(state):
    do(state, seen(), seen(B), load())
    do(
        state,
        records.OwnerSet("root.t.d1", B, "moved"),
        load(path("2-2-0"), 2, sender=B),
    )
    assert state.owners["root.t.d1"].sender == B
    refuse(state, "belongs to", load(path("3-3-0"), 3), error=ConflictError)


def test_what_nobody_owns_cannot_be_released(state):
    refuse(state, "nobody owns", records.OwnerSet("d", None, "release"))
    do(state, seen(), load())
    do(state, records.OwnerSet("root.t.d1", None, "release"))
    refuse(state, "nobody owns", records.OwnerSet("root.t.d1", None, "release"))
    refuse(state, "has no name", records.OwnerSet("", A, "x"))


@pytest.mark.parametrize(
    ("ops", "match"),
    [
        ([GONE], "there is no file"),
        ([records.FileRetired(PHYS)], "there is no file"),
        ([records.FileQuarantined(PHYS, "bad")], "there is no file"),
        ([records.FileRestored(PHYS)], "there is no file"),
        ([records.FileForgotten(PHYS)], "there is no file"),
        ([records.FileVerified([PHYS])], "there is no file"),
        ([records.ResourceNoted(PHYS, RESOURCE)], "there is no file"),
        ([load(), GONE, records.ResourceNoted(PHYS, RESOURCE)], "is deleted"),
        ([records.FileVerified([])], "there is no file, or one twice"),
        ([load(), records.FileVerified([PHYS, PHYS])], "one twice"),
        ([load(), GONE, records.FileVerified([PHYS])], "is deleted"),
        ([load(), records.FileQuarantined(PHYS, "x"), records.FileVerified([PHYS])], "quarantined"),
        ([load(), GONE, GONE], "is deleted"),
        ([load(), records.FileRetired(PHYS), records.FileRetired(PHYS)], "is retired"),
        ([load(), records.FileRestored(PHYS)], "is live"),
        ([load(), records.FileReturned(PHYS)], "is live"),
        ([load(), GONE, records.FileReturned(PHYS)], "is deleted"),
        ([load(), records.FileForgotten(PHYS)], "is live"),
        ([load(), GONE, records.FileQuarantined(PHYS, "bad")], "is deleted"),
        ([load(), GONE, records.FileForgotten(PHYS), GONE], "there is no file"),
        ([UPLOADED], "there is no file"),
        ([load(), msgspec.structs.replace(UPLOADED, incarnation=0)], "no owner"),
        ([load(), UPLOADED, UPLOADED], "in the store already"),
        ([load(), UPLOADED, msgspec.structs.replace(UPLOADED, incarnation=2)], "of incarnation 1"),
        ([load(), records.ObjectRemoved(PHYS)], "not in the store"),
        ([load(), UPLOADED, records.ObjectRemoved(PHYS)], "not forgotten"),
        (
            [load(), *[records.FileQuarantined(PHYS, "bad")] * 2],
            "is quarantined",
        ),
    ],
)
def test_the_life_of_a_file_has_an_order(state, ops, match):
    do(state, seen())
    refuse(state, match, *ops)
    *before, last = ops
    if before:
        do(state, *before)
        refuse(state, match, last)


def test_an_object_has_the_size_of_its_file(state):
    do(state, seen(), load())
    refuse(state, "another size", msgspec.structs.replace(UPLOADED, size=3))
    do(state, UPLOADED)


def test_a_task_is_done_once(state):
    do(state, seen(), records.TaskDone(A, TASK, []))
    refuse(state, "is done already", records.TaskDone(A, TASK, []))
    refuse(state, "no task id", records.TaskDone(A, "x", []))


@pytest.mark.parametrize(
    ("op", "match"),
    [
        (token(role="root"), "is no role"),
        (token(hash="00"), "64 hex digits"),
        (token(expires=float("nan")), "no time to expire"),
        (token(role="sender"), "bound to a sender"),
        (token(role="reader", sender=A), "bound to a sender"),
        (token(role="sender", sender="x"), "no sender uuid"),
        (token(id=""), "is there already"),
        (token(certificate="*.example"), "no name of a certificate"),
    ],
)
def test_tokens_are_checked(state, op, match):
    refuse(state, match, op)


def test_a_certificate_is_bound_by_one_token_at_a_time(state):
    one, two = (
        token(id=f"0000000{number}", hash=f"{number}" * 64, certificate="edge.example")
        for number in (1, 2)
    )
    refuse(state, "bound already, as 00000001", one, two)
    do(state, one)
    refuse(state, "bound already, as 00000001", two)
    do(state, records.TokenRevoke(one.id), two)
    assert state.token_table.by_certificate("edge.example").id == two.id
    do(state, records.TokenRevoke(two.id))
    assert state.token_table.by_certificate("edge.example") is None


def test_a_token_is_made_and_revoked_once(state):
    do(state, token())
    refuse(state, "is there already", token(hash="00" * 32))
    refuse(state, "another token has the same hash", token(id="t2"))
    do(state, records.TokenRevoke("t1"))
    refuse(state, "there is no token", records.TokenRevoke("t1"))
    do(state, token())


def test_only_what_is_in_quarantine_can_be_dropped(state):
    do(state, seen(), records.QuarantinePut(A, P, "00", 1, True, "why"))
    refuse(state, "is not in quarantine", records.QuarantineDrop(A, P, "01"))
    do(state, records.QuarantineDrop(A, P, "00"))
    refuse(state, "is not in quarantine", records.QuarantineDrop(A, P, "00"))
