import errno

import pytest

from common.durable import AppendFile, Tree
from common.errors import NoSpaceError, ReadOnlyError
from common.hooks import event_queue
from common.hooks.event_queue import queue_standing
from common.hooks.queue_lines import LogPlace, read_lines
from tests.support.hooked import event, queue, said


def waiting(found):
    return [said(each.event) for each in found._waiting]


def test_what_was_put_and_not_delivered_is_there_after_a_restart(tmp_path):
    with queue(tmp_path) as first:
        for text in "abc":
            assert first.put(event(text))
        first.delivered(seq=first.head().seq)
    with queue(tmp_path) as again:
        assert waiting(again) == ["b", "c"]
        assert again.put(event("d"))
        assert again.head().seq == 2
        assert again.standing.delivered == 1


def test_what_stands_is_known_after_a_restart_and_its_end_too(tmp_path):
    with queue(tmp_path) as first:
        first.put(event("late"), key="late:a", standing="late")
        first.put(event("late"), key="late:b", standing="late")
        first.put(event("back"), key="late:b")
    with queue(tmp_path) as again:
        assert again.stands("late:a") == "late"
        assert again.stands("late:b") == ""
        assert again.keys("late:") == ["late:a"]


def test_a_full_queue_drops_the_oldest_and_counts_them(tmp_path):
    with queue(tmp_path, limit=3) as first:
        for text in "abcde":
            first.put(event(text, "late" if text == "a" else "disk"))
        assert waiting(first) == ["c", "d", "e"]
    with queue(tmp_path, limit=3) as again:
        assert waiting(again) == ["c", "d", "e"]
        assert again.untold == {"late": 1, "disk": 1}
        assert again.standing.dropped == 2
        again.put(event("f"))
        again.delivered(told={"late": 1, "disk": 1})
        assert again.untold == {"disk": 1}  # what came while the others were told of is told, too


def test_how_far_the_log_was_told_of_is_known_after_a_restart(tmp_path):
    with queue(tmp_path) as first:
        assert first.place is None
        first.reached(LogPlace("e", 10, 3))
        first.delivered(place=LogPlace("e", 12, 4), count=2)
    with queue(tmp_path) as again:
        assert again.place == LogPlace("e", 12, 4)
        assert again.standing.delivered == 2


def test_failures_are_counted_until_one_comes_through(tmp_path):
    now = [100.0]
    with queue(tmp_path, clock=lambda: now[0]) as found:
        found.put(event("a"))
        found.failed("HTTP 500")
        now[0] = 200.0
        found.failed("HTTP 503")
        standing = found.standing
        assert (standing.failing_since, standing.failed_at) == (100.0, 200.0)
        assert (standing.error, standing.failed) == ("HTTP 503", 2)
        found.delivered(seq=1)
        assert found.standing.failing_since is None
        assert found.standing.delivered_at == 200.0


def test_the_file_does_not_grow_with_what_went_through(tmp_path, monkeypatch):
    monkeypatch.setattr(event_queue, "_SLACK", 4096)
    with queue(tmp_path) as found:
        for number in range(300):
            found.put(event(str(number)))
            found.delivered(seq=found.head().seq)
        assert (tmp_path / "command.queue").stat().st_size < 10_000
    with queue(tmp_path) as again:
        assert again.standing.delivered == 300
        assert again.head() is None


def test_a_line_that_is_damaged_is_passed_over_and_those_behind_it_are_not(tmp_path):
    with queue(tmp_path) as first:
        for text in "abc":
            first.put(event(text))
    file = tmp_path / "command.queue"
    lines = file.read_bytes().split(b"\n")
    lines[2] = lines[2].replace(b'"b"', b'"X"')
    file.write_bytes(b"\n".join(lines) + b"0123 torn")
    with queue(tmp_path) as again:
        assert waiting(again) == ["a", "c"]
        again.put(event("d"))
    assert None not in list(read_lines(file.read_bytes()))


def fails(error):
    def append(self, data):
        raise error

    return append


@pytest.mark.parametrize("error", [NoSpaceError("full"), ReadOnlyError("a flush failed")])
def test_a_disk_that_takes_nothing_keeps_no_event_from_being_told(tmp_path, monkeypatch, error):
    with queue(tmp_path) as found:
        found.put(event("a"))
        with monkeypatch.context() as broken:
            broken.setattr(AppendFile, "append", fails(error))
            broken.setattr(Tree, "write_atomic", lambda *args, **more: fails(error)(None, None))
            assert not found.put(event("b"))
            assert found.problem == str(error)
            found.delivered(seq=1)
            assert waiting(found) == ["b"]
        assert found.put(event("c"))
        assert found.problem is None
    with queue(tmp_path) as again:
        assert waiting(again) == ["b", "c"]  # what was said meanwhile was written with the next


def test_a_queue_opens_where_nothing_can_be_written(tmp_path, monkeypatch):
    error = OSError(errno.EROFS, "read-only file system")
    monkeypatch.setattr(Tree, "write_atomic", lambda *args, **more: fails(error)(None, None))
    with queue(tmp_path) as found:
        assert not found.put(event("a"))
        assert waiting(found) == ["a"]


def test_how_it_stands_can_be_read_beside_the_process_that_has_it_open(tmp_path):
    with Tree(tmp_path) as tree, queue(tmp_path) as found:
        assert queue_standing(tree, "webhook") is None
        found.put(event("a"))
        found.failed("HTTP 500")
        standing = queue_standing(tree, "command")
        assert standing == found.standing
        assert (standing.waiting, standing.error) == (1, "HTTP 500")


def test_a_closed_queue_writes_nothing_more(tmp_path):
    with queue(tmp_path) as found:
        found.put(event("a"))
    before = (tmp_path / "command.queue").read_bytes()
    found.delivered(seq=1)
    assert (tmp_path / "command.queue").read_bytes() == before
