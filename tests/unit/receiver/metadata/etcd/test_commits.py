"""The log in etcd keeps what was appended, in order, for one owner at a time."""

import threading

import pytest

from common.errors import (
    ConflictError,
    DamagedError,
    ForbiddenError,
    LockedError,
    UnauthorizedError,
    UnreachableError,
)
from receiver.metadata.etcd.commits import EtcdLog
from receiver.metadata.etcd.gateway import EtcdClient
from receiver.metadata.etcd.messages import PART_SIZE, Delete, Get, Put, prefix_end
from receiver.metadata.etcd.patience import Patience
from receiver.metadata.model.errors import FencedError, NewerLogError, UnknownOutcomeError
from tests.support.procs import wait_until

UUID = "0123456789abcdef" * 2


class World:
    """Logs of one prefix, all closed at the end."""

    def __init__(self, settings):
        self.settings = settings
        self.client = EtcdClient(settings)
        self._logs = []

    def log(self, *, wait=0.0, lease=5.0, url=None):
        log = EtcdLog(
            EtcdClient(self.settings),
            self.settings.prefix,
            lease=lease,
            patience=Patience(5.0),
            url=url,
        )
        self._logs.append(log)
        log.acquire(wait=wait)
        return log

    def keys(self, below=""):
        prefix = f"{self.settings.prefix}/{below}".encode()
        found = self.client.get(Get(prefix, prefix_end(prefix), keys_only=True)).keys
        return [each.key[len(self.settings.prefix) + 1 :].decode() for each in found]

    def change(self, *operations):
        self.client.transaction([], operations)

    def at(self, name):
        return f"{self.settings.prefix}/{name}".encode()

    def close(self):
        for log in self._logs:
            log.close()
        self.client.close()


@pytest.fixture
def world(shared_etcd):
    world = World(shared_etcd.settings(timeout=60.0))
    yield world
    world.close()


def test_an_empty_place_has_no_commits(world):
    log = world.log()
    assert (log.uuid, log.newest(), log.oldest()) == (None, 0, 1)
    assert list(log.frames(1)) == []
    assert log.checkpoint() is None
    assert log.settle() is None


def test_who_stands_by_waits_for_the_end_of_the_owner_and_takes_nothing(world):
    owner = world.log()
    other = EtcdLog(
        EtcdClient(world.settings), world.settings.prefix, lease=5.0, patience=Patience(5.0)
    )
    world._logs.append(other)
    waiting = threading.Thread(target=other.stand_by)
    waiting.start()
    waiting.join(0.1)
    assert waiting.is_alive()
    owner.close()
    waiting.join(60)
    assert not waiting.is_alive()
    assert world.keys() == ["epoch"]
    world.log()


def test_what_was_appended_is_there_after_a_restart(world):
    log = world.log()
    log.begin(UUID)
    log.append(1, 1, b"one")
    log.append(2, 3, b"two to four")
    log.append(5, 1, b"")
    frames = [(1, b"one"), (2, b"two to four"), (5, b"")]
    for _ in range(2):
        assert (log.uuid, log.newest(), log.oldest()) == (UUID, 5, 1)
        assert list(log.frames(1)) == frames
        assert list(log.frames(3)) == list(log.frames(2)) == list(log.frames(4)) == frames[1:]
        assert list(log.frames(5)) == frames[2:]
        assert list(log.frames(6)) == []
        log.close()
        log = world.log()


def test_a_frame_that_is_not_the_next_is_refused(world):
    log = world.log()
    log.append(1, 2, b"x")
    for lsn in (1, 2, 4):
        with pytest.raises(ConflictError, match="goes on with 3"):
            log.append(lsn, 1, b"y")
    assert list(log.frames(1)) == [(1, b"x")]


def test_an_engine_begins_only_where_no_commits_are(world):
    log = world.log()
    log.begin(UUID)
    other = UUID[::-1]
    log.begin(other)
    log.append(1, 1, b"x")
    with pytest.raises(ConflictError, match=other):
        log.begin(UUID)


def test_a_large_frame_is_kept_whole(world):
    payload = bytes(range(256)) * 4096 * 5 + b"end"
    assert len(payload) > 5 * PART_SIZE
    log = world.log()
    log.append(1, 1, b"before")
    log.append(2, 700, payload)
    log.append(702, 1, b"after")
    log.close()
    log = world.log()
    assert list(log.frames(1)) == [(1, b"before"), (2, payload), (702, b"after")]
    assert len(world.keys("parts/")) == 6


def test_many_frames_come_in_pages_and_in_order(world):
    log = world.log()
    for lsn in range(1, 301):
        log.append(lsn, 1, b"%d" % lsn + b"x" * (200_000 if lsn % 50 == 0 else 10))
    assert [lsn for lsn, _ in log.frames(1)] == list(range(1, 301))
    assert [payload.rstrip(b"x") for _, payload in log.frames(250)] == [
        b"%d" % lsn for lsn in range(250, 301)
    ]


@pytest.mark.parametrize("lost", [f"log/{lsn:020}" for lsn in (2, 3, 1)])
def test_a_frame_that_is_gone_is_damage_and_no_gap(world, lost):
    log = world.log()
    for lsn in (1, 2, 3):
        log.append(lsn, 1, b"x")
    world.change(Delete(world.at(lost)))
    with pytest.raises(DamagedError, match=lost):
        list(log.frames(1))


@pytest.mark.parametrize(
    "value",
    [b"", b"rubbish", b"\x95\x00\xa1a\xc4\x00\x00\xc4\x00", b"\x95\x01\xa1a\xc4\x00\x00\xc4\x01x"],
)
def test_a_frame_that_is_not_what_was_put_is_damage(world, value):
    log = world.log()
    log.append(1, 1, b"x")
    world.change(Put(world.at(f"log/{1:020}"), value))
    with pytest.raises(DamagedError, match="log/0"):
        list(log.frames(1))


def test_a_part_that_is_gone_is_damage(world):
    log = world.log()
    log.append(1, 1, b"x" * (2 * PART_SIZE))
    world.change(Delete(world.at(world.keys("parts/")[1])))
    with pytest.raises(DamagedError, match="digest"):
        list(log.frames(1))


@pytest.mark.parametrize("value", [b"", b"7", b'{"next": "x"}'])
def test_a_head_that_is_none_is_damage(world, value):
    log = world.log()
    log.append(1, 1, b"x")
    log.close()
    world.change(Put(world.at("head"), value))
    with pytest.raises(DamagedError, match="head"):
        world.log()


def test_a_log_of_a_newer_version_is_refused_with_its_number(world):
    log = world.log()
    log.append(1, 1, b"x")
    log.close()
    world.change(Put(world.at("head"), b'{"next": 2, "version": 9, "more": []}'))
    for _ in range(2):  # and is free again
        with pytest.raises(NewerLogError, match="version 9"):
            world.log()


@pytest.mark.parametrize("appends", [True, False])
def test_the_first_release_refuses_what_was_opened_here_by_its_version(world, monkeypatch, appends):
    """It knows fewer operations, and would call the frames damaged."""
    log = world.log()
    log.append(1, 1, b"x")
    log.close()
    world.change(Put(world.at("head"), b'{"next":2,"id":"of the first release"}'))
    log = world.log()
    if appends:
        log.append(2, 1, b"y")
    log.close()
    with monkeypatch.context() as first:
        first.setattr("receiver.metadata.etcd.commits._VERSION", 1)
        with pytest.raises(NewerLogError, match="up to 1"):
            world.log()
    assert list(world.log().frames(1)) == [(1, b"x"), (2, b"y")][: 1 + appends]


@pytest.mark.parametrize("error", [UnauthorizedError, ForbiddenError])
def test_what_an_administrator_of_etcd_takes_away_for_a_while_ends_no_log(
    world, monkeypatch, error
):
    """A password or a role that is changed: nothing was written, and the next try may succeed."""
    log = world.log()
    log.append(1, 1, b"x")
    answers = []
    ask = log._client.transaction

    def transaction(*args):
        if answers and (answer := answers.pop(0)):
            raise answer
        return ask(*args)

    monkeypatch.setattr(log._client, "transaction", transaction)
    answers += [error("no")]
    with pytest.raises(UnreachableError, match="refuses"):
        log.append(2, 1, b"y")
    log.append(2, 1, b"y")
    answers += [UnknownOutcomeError("no answer came"), error("no")]
    with pytest.raises(UnknownOutcomeError):
        log.append(3, 1, b"z")
    answers += [error("no")]
    with pytest.raises(UnreachableError):
        log.settle()
    assert log.settle() is False
    log.append(3, 1, b"z")
    assert [payload for _, payload in log.frames(1)] == [b"x", b"y", b"z"]


def test_who_is_not_let_in_any_more_is_in_trouble_though_its_lease_lives(world, monkeypatch):
    log = world.log(lease=1.0)
    ask = log._client.get
    assert log.trouble is None

    def refused(wanted):
        raise UnauthorizedError("who are you")

    monkeypatch.setattr(log._client, "get", refused)
    wait_until(lambda: log.trouble == "who are you", "it to say so")
    monkeypatch.setattr(log._client, "get", ask)
    wait_until(lambda: log.trouble is None, "its return")


# -- one owner -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_second_receiver_is_refused_while_the_first_shows_life(world):
    log = world.log(lease=2.0)
    with pytest.raises(LockedError, match="in etcd") as caught:
        world.log(wait=3.0)  # longer than the lease: the first one keeps it alive
    assert isinstance(caught.value.extra["pid"], int)
    log.append(1, 1, b"x")


def test_a_closed_log_is_free_at_once(world):
    world.log(lease=60.0).close()
    world.log()


def test_an_owner_that_was_replaced_writes_no_more(world):
    old = world.log(lease=60.0)
    old.append(1, 1, b"x")
    # As if its lease had run out while it was paused.
    world.change(Delete(world.at("owner")))
    new = world.log()
    assert new.newest() == 1
    with pytest.raises(FencedError):
        old.append(2, 1, b"old")
    new.append(2, 1, b"new")
    for change in (
        lambda: old.append(2, 1, b"old"),
        lambda: old.append(2, 1, b"x" * (2 * PART_SIZE)),
        lambda: old.put_checkpoint(1, {}),
        lambda: old.begin(UUID) if not old.newest() else old.append(2, 1, b"o"),
    ):
        with pytest.raises(FencedError):
            change()
    assert old.fenced
    assert not new.fenced
    assert list(new.frames(1)) == [(1, b"x"), (2, b"new")]
    assert world.keys("parts/") == []
    old.close()
    new.append(3, 1, b"new still")


def test_an_owner_whose_lease_ran_out_goes_on_if_nobody_came(world):
    log = world.log(lease=60.0)
    log.append(1, 1, b"x")
    world.change(Delete(world.at("owner")))
    log.append(2, 1, b"y")
    world.change(Delete(world.at("owner")))
    log.append(3, 1, b"z" * (2 * PART_SIZE))
    assert [lsn for lsn, _ in log.frames(1)] == [1, 2, 3]
    with pytest.raises(LockedError):
        world.log()


def test_an_owner_that_another_one_came_after_is_fenced_though_that_one_is_gone(world):
    old = world.log(lease=60.0)
    old.append(1, 1, b"x")
    world.change(Delete(world.at("owner")))
    world.log().close()
    with pytest.raises(FencedError):
        old.append(2, 1, b"y")


def test_who_is_not_the_owner_any_more_says_so_though_nobody_commits(world):
    old = world.log(lease=60.0)
    world.change(Delete(world.at("owner")))
    assert old._ownership.look()  # nobody came: it is its own again
    assert old.trouble is None
    world.change(Delete(world.at("owner")))
    world.log(url="https://second:8765")
    assert not old._ownership.look()
    assert old.fenced
    assert "not master any more" in old.trouble
    assert "(https://second:8765) has taken over" in old.displaced().message


def test_who_lost_its_place_in_a_commit_learns_who_has_it_at_the_next_sign_of_life(world):
    old = world.log(lease=60.0)
    world.change(Delete(world.at("owner")))
    new = world.log(url="https://second:8765")
    new.append(1, 1, b"x")
    with pytest.raises(FencedError):
        old.append(1, 1, b"y")
    old._ownership._taken_by = None  # as of a commit whose answer told of the log alone
    assert not old._ownership.look()
    assert "(https://second:8765) has taken over" in old.displaced().message
    with pytest.raises(LockedError, match=r"\(https://second:8765\) writes to"):
        world.log()


def test_who_slept_past_its_lease_does_not_know_whether_it_is_the_owner_until_it_has_asked(world):
    now = [100.0]
    log = EtcdLog(
        EtcdClient(world.settings),
        world.settings.prefix,
        lease=60.0,
        patience=Patience(5.0, clock=lambda: now[0]),
    )
    world._logs.append(log)
    log.acquire(wait=0.0)
    now[0] += 59.9
    assert log.displaced() is None
    assert log.trouble is None
    now[0] += 0.2  # nobody else is there, and it cannot know
    found = log.displaced()
    assert isinstance(found, UnreachableError)
    assert "no sign of life of this process for 60 s" in found.message
    assert "60 s" in log.trouble
    assert log._ownership.look()
    assert log.displaced() is None
    assert log.trouble is None
    world.change(Delete(world.at("owner")))
    world.log()
    with pytest.raises(FencedError):  # a commit finds it out before the next sign of life does
        log.append(1, 1, b"x")
    assert isinstance(log.displaced(), FencedError)
    assert "not master any more" in log.trouble


def test_a_log_that_was_removed_under_its_owner_is_written_no_more(world):
    log = world.log()
    log.append(1, 1, b"x")
    everything = world.at("")
    world.change(Delete(everything, prefix_end(everything)))
    with pytest.raises(FencedError):
        log.append(2, 1, b"y")


# -- checkpoints ---------------------------------------------------------------------------------


def test_a_checkpoint_is_read_back_as_it_was_put(world, tmp_path):
    log = world.log()
    log.append(1, 5, b"x")
    big, empty = tmp_path / "big", tmp_path / "empty"
    big.write_bytes(bytes(range(256)) * 4096 * 3 + b"tail")
    empty.write_bytes(b"")
    log.put_checkpoint(5, {"mtree": big, "tlog": empty})
    log.close()
    log = world.log()
    checkpoint = log.checkpoint()
    assert checkpoint.lsn == 5
    assert checkpoint.files == {"mtree": big.stat().st_size, "tlog": 0}
    assert b"".join(checkpoint.read("mtree")) == big.read_bytes()
    assert b"".join(checkpoint.read("tlog")) == b""
    assert all(len(piece) <= 1 << 20 for piece in checkpoint.read("mtree"))


def test_a_file_that_grew_costs_what_it_grew_by(world, tmp_path):
    log = world.log()
    log.append(1, 9, b"x")
    tlog = tmp_path / "tlog"
    content = b"".join(bytes([number]) * (1 << 20) for number in range(4))
    tlog.write_bytes(content)
    log.put_checkpoint(1, {"tlog": tlog})
    before = {each: world.client.get(Get(world.at(each))).keys[0] for each in world.keys("pieces/")}
    tlog.write_bytes(content + b"more")
    log.put_checkpoint(2, {"tlog": tlog})
    after = {each: world.client.get(Get(world.at(each))).keys[0] for each in world.keys("pieces/")}
    assert len(before) == 4
    assert len(after) == 5
    assert all(after[each].changed == before[each].changed for each in before)
    assert b"".join(log.checkpoint().read("tlog")) == content + b"more"


def test_pieces_that_no_checkpoint_needs_go(world, tmp_path):
    log = world.log()
    log.append(1, 9, b"x")
    for number in range(3):
        file = tmp_path / "mtree"
        file.write_bytes(bytes([number]) * 2_500_000)
        log.put_checkpoint(number + 1, {"mtree": file})
        # 1 MiB twice the same, and the rest.
        assert len(world.keys("pieces/")) == 2
    assert log.checkpoint().lsn == 3


def test_a_piece_that_is_gone_is_damage(world, tmp_path):
    log = world.log()
    log.append(1, 1, b"x")
    file = tmp_path / "mtree"
    file.write_bytes(b"content")
    log.put_checkpoint(1, {"mtree": file})
    piece = world.keys("pieces/")[0]
    world.change(Put(world.at(piece), b"other"))
    with pytest.raises(DamagedError, match="not what was put"):
        list(log.checkpoint().read("mtree"))
    world.change(Delete(world.at(piece)))
    with pytest.raises(DamagedError, match="gone"):
        list(log.checkpoint().read("mtree"))
    world.change(Put(world.at("checkpoint"), b"[]"))
    with pytest.raises(DamagedError, match="manifest"):
        log.checkpoint()


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("lsn", "left"),
    [(0, [1, 2, 5]), (1, [2, 5]), (2, [2, 5]), (3, [2, 5]), (4, [5]), (5, [5]), (6, [])],
)
def test_trimming_takes_whole_frames_below_the_checkpoint(world, tmp_path, lsn, left):
    log = world.log()
    log.append(1, 1, b"one")
    log.append(2, 3, b"x" * (2 * PART_SIZE))
    log.append(5, 2, b"five, six")
    file = tmp_path / "mtree"
    file.write_bytes(b"content")
    log.put_checkpoint(6, {"mtree": file})
    log.trim(lsn)
    assert [int(each[4:]) for each in world.keys("log/")] == left
    assert bool(world.keys("parts/")) == (2 in left)
    assert log.oldest() == (left[0] if left else 7)
    assert log.newest() == 6
    if left:
        assert [first for first, _ in log.frames(left[0])] == left
    if lsn:
        with pytest.raises(DamagedError):
            list(log.frames(1))
    log.append(7, 1, b"seven")
    assert list(log.frames(7)) == [(7, b"seven")]


def test_nothing_is_trimmed_that_no_checkpoint_stands_in_for(world, tmp_path):
    log = world.log()
    log.append(1, 3, b"x")
    with pytest.raises(ConflictError, match="no checkpoint"):
        log.trim(1)
    file = tmp_path / "mtree"
    file.write_bytes(b"content")
    log.put_checkpoint(1, {"mtree": file})
    with pytest.raises(ConflictError, match="it is at 1"):
        log.trim(2)
    assert list(log.frames(1)) == [(1, b"x")]


def test_what_was_left_staged_is_removed_at_the_next_start(world, tmp_path):
    log = world.log()
    log.append(1, 1, b"x" * (2 * PART_SIZE))
    kept = world.keys("parts/")
    file = tmp_path / "mtree"
    file.write_bytes(b"content")
    log.put_checkpoint(1, {"mtree": file})
    pieces = world.keys("pieces/")
    log.close()
    world.change(
        Put(world.at(f"parts/{2:020}-dead/000000"), b"x"),
        Put(world.at(f"parts/{2:020}-dead/000001"), b"x"),
        Put(world.at(f"parts/{1:020}-dead/000000"), b"x"),
        Put(world.at("pieces/" + "0" * 32), b"x"),
    )
    log = world.log()
    assert world.keys("parts/") == kept
    assert world.keys("pieces/") == pieces
    assert [lsn for lsn, _ in log.frames(1)] == [1]
