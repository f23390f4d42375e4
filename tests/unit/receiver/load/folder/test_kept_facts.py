"""Facts of files are kept within a bound, and given once, of the very file."""

from __future__ import annotations

import msgspec
import pytest

from receiver.load.folder.kept_facts import KeptFacts
from receiver.load.folder.staged import Verified

SENDER = "a" * 32


def record(path: str = "sequence/root.g/0/0/1-1-0-0.tsfile", **changes) -> Verified:
    made = Verified(path=path, size=9, md5="0" * 32, tail="t", inode=1, mtime_ns=2, at=3.0)
    return msgspec.structs.replace(made, **changes)


def test_what_is_kept_is_given_once():
    facts = KeptFacts()
    facts.put(SENDER, record(), b"facts")
    assert facts.take(SENDER, record()) == b"facts"
    assert facts.take(SENDER, record()) is None


@pytest.mark.parametrize("changes", [{"inode": 8}, {"mtime_ns": 8}, {"size": 8}, {"md5": "1" * 32}])
def test_of_another_file_under_the_path_nothing_is_known(changes):
    facts = KeptFacts()
    facts.put(SENDER, record(), b"facts")
    assert facts.take(SENDER, record(**changes)) is None


def test_of_another_sender_nothing_is_known():
    facts = KeptFacts()
    facts.put(SENDER, record(), b"facts")
    assert facts.take("b" * 32, record()) is None


def test_the_oldest_go_where_there_is_no_more_room():
    facts = KeptFacts(limit=3000)
    for number in range(9):
        facts.put(SENDER, record(str(number)), bytes(600))
    kept = [number for number in range(9) if facts.take(SENDER, record(str(number)))]
    assert kept == [6, 7, 8]
    facts.put(SENDER, record("large"), bytes(4000))
    assert facts.take(SENDER, record("large")) is None


def test_room_comes_back_with_what_is_taken_or_put_anew():
    facts = KeptFacts(limit=3000)
    for _ in range(9):
        facts.put(SENDER, record("1"), bytes(600))
        facts.put(SENDER, record("2"), bytes(600))
        assert facts.take(SENDER, record("1"))
    assert facts.take(SENDER, record("2"))
