import pytest

from common.hooks.delivery_outcome import DeliveryOutcome
from common.hooks.queue_lines import LogPlace
from tests.support.hooked import (
    LOG,
    REFUSED,
    TAKEN,
    Commits,
    Ticks,
    Way,
    delivery,
    event,
    queue,
)


@pytest.fixture
def waits(tmp_path):
    with queue(tmp_path) as found:
        yield found


def commit(*texts, kind="loaded"):
    return [event(text, kind, ident=text) for text in texts]


def steps(made, count=100):
    for _ in range(count):
        pause = made.step()
        if pause != 0.0:
            return pause
    raise AssertionError("it does not come to rest")


def test_what_waits_is_delivered_in_order_and_what_is_committed_too(waits):
    way, log = Way(), Commits()
    made = delivery(waits, way, log=log)
    waits.put(event("a"))
    waits.put(event("b"))
    log.commits += [commit("1"), [], commit("3", "4"), commit("5"), commit("6")]
    assert steps(made) is None
    assert way.texts == ["a", "b", "1", "3", "4", "5", "6"]
    assert waits.place == LogPlace(LOG, 5, 5)
    assert waits.head() is None


def test_what_was_committed_before_the_hook_was_there_is_not_told(waits):
    way, log = Way(), Commits([commit("1"), commit("2")])
    made = delivery(waits, way, log=log)
    assert waits.place == LogPlace(LOG, 2, 2)
    log.commits.append(commit("3"))
    steps(made)
    assert way.texts == ["3"]


def test_a_commit_counts_as_told_only_with_its_last_event(tmp_path):
    log = Commits()
    with queue(tmp_path) as found:
        way = Way(TAKEN, REFUSED)
        made = delivery(found, way, log=log)
        log.commits.append(commit("1", "2"))
        steps(made)
        assert found.place == LogPlace(LOG, 0, 0)
    with queue(tmp_path) as found:
        way = Way()
        steps(delivery(found, way, log=log))
        assert way.texts == ["1", "2"]
        assert [each.id for each in way.taken] == ["1", "2"]


def test_a_failure_is_tried_again_behind_pauses_that_double_up_to_ten_minutes(waits):
    way = Way(*[REFUSED] * 20)
    made = delivery(waits, way, give_up_after=1e9)
    waits.put(event("a"))
    waits.put(event("b"))
    pauses = [made.step() for _ in range(20)]
    assert pauses[:4] == [0.5, 1.0, 2.0, 4.0]
    assert pauses[-1] == 300.0
    steps(made)
    assert way.texts == ["a", "b"]
    assert {each.id for each in way.seen[:21]} == {way.taken[0].id}
    assert waits.standing.failed == 20


def test_the_pause_that_the_other_side_asks_for_is_kept_up_to_an_hour(waits):
    later = DeliveryOutcome(ok=False, text="HTTP 503", retry_after=120.0)
    never = DeliveryOutcome(ok=False, text="HTTP 503", retry_after=1e9)
    made = delivery(waits, Way(later, never))
    waits.put(event("a"))
    assert made.step() == 120.0
    assert made.step() == 3600.0


def test_an_event_that_nobody_takes_is_given_up_and_that_is_told(waits):
    ticks, way = Ticks(), Way(REFUSED, REFUSED)
    made = delivery(waits, way, ticks=ticks, give_up_after=60.0)
    waits.put(event("a"))
    waits.put(event("b"))
    made.step()
    ticks.now += 61
    made.step()
    steps(made)
    told, after = way.taken
    assert told.kind == "dropped"
    since = {"since": 5.0, "since_iso": "1970-01-01T00:00:05.000Z"}
    assert told.what == {"events": 1, "kinds": {"disk": 1}, **since}
    assert after.what["problem"] == "b"
    assert waits.untold == {}


def test_what_was_dropped_is_told_with_pauses_that_grow_however_much_more_is_dropped(waits):
    way = Way(*[REFUSED] * 6)
    made = delivery(waits, way, give_up_after=1.0)
    waits.put(event("a"))
    waits.drop("disk", seq=1)
    pauses = []
    for _ in range(3):
        pauses.append(made.step())
        pauses.append(made.step())
        waits.drop("late")
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0]
    assert way.seen[0].id == way.seen[1].id != way.seen[2].id
    steps(made)
    (told,) = way.taken
    assert told.what["kinds"] == {"disk": 1, "late": 3}


def test_a_commit_that_is_given_up_does_not_come_again(waits):
    ticks, way, log = Ticks(), Way(REFUSED, REFUSED), Commits()
    made = delivery(waits, way, ticks=ticks, log=log, give_up_after=60.0)
    log.commits += [commit("1"), commit("2")]
    made.step()
    ticks.now += 61
    made.step()
    assert waits.place == LogPlace(LOG, 1, 1)
    steps(made)
    assert [each.kind for each in way.taken] == ["dropped", "loaded"]


def test_commits_that_the_history_has_let_go_of_are_told_as_dropped(tmp_path):
    log = Commits()
    with queue(tmp_path) as found:
        delivery(found, Way(), log=log)
        log.commits += [commit(str(number)) for number in range(1, 10)]
        log.oldest = 7
        way = Way()
        steps(delivery(found, way, log=log))
        first, *rest = way.taken
        assert (first.kind, first.what["events"], first.what["kinds"]) == (
            "dropped",
            7,
            {"commits": 7},
        )
        assert [each.what["problem"] for each in rest] == ["8", "9"]


def test_who_answers_410_is_told_nothing_more_until_the_next_start(tmp_path):
    gone = DeliveryOutcome(ok=False, text="HTTP 410", gone=True)
    with queue(tmp_path) as found:
        way = Way(gone)
        made = delivery(found, way)
        found.put(event("a"))
        made.step()
        assert made.gone
        made.step()
        assert len(way.seen) == 1
    with queue(tmp_path) as found:
        way = Way()
        steps(delivery(found, way))
        assert way.texts == ["a"]


def test_kinds_that_are_not_wanted_are_passed_over(waits):
    ticks, way, log = Ticks(), Way(), Commits()
    made = delivery(waits, way, log=log, ticks=ticks, wants=lambda kind: kind == "lost")
    log.commits += [commit("1"), commit("2", kind="lost"), commit("3")]
    steps(made)
    assert way.texts == ["2"]
    ticks.now += 61
    assert made.step() is None
    assert waits.place == LogPlace(LOG, 3, 3)  # noted now and then: a start reads less


def test_a_log_that_cannot_be_read_is_a_failure_that_passes(waits):
    class Broken(Commits):
        broken = False

        def after(self, place, wants):
            if self.broken:
                raise OSError("the disk")
            return super().after(place, wants)

    log, way = Broken(), Way()
    made = delivery(waits, way, log=log)
    log.commits.append(commit("1"))
    log.broken = True
    assert made.step() == 0.5
    assert "the disk" in waits.standing.error
    log.broken = False
    steps(made)
    assert way.texts == ["1"]


def test_a_fault_of_ours_in_one_event_does_not_end_the_thread(waits, caplog):
    calls = []

    def way(event, stopped):
        calls.append(event)
        raise ZeroDivisionError

    made = delivery(waits, way)
    waits.put(event("a"))
    made.start()
    assert made.idle.wait(60)
    made.close()
    assert len(calls) == 1
    assert "an error nobody foresaw" in caplog.text


def test_the_thread_delivers_what_is_put_and_ends(waits):
    way = Way()
    made = delivery(waits, way)
    made.start()
    waits.put(event("a"))
    made.wake()
    assert made.idle.wait(60)
    made.close()
    assert way.texts == ["a"]


def test_a_way_out_that_raises_has_failed_and_its_words_are_not_shown(waits, caplog):
    def send(event, stopped):
        raise ValueError("https://h.example/secret")

    made = delivery(waits, send)
    waits.put(event("a"))
    assert made.step() == 0.5
    assert waits.standing.error == "an error nobody foresaw: ValueError"
    assert "secret" not in caplog.text


def test_from_a_log_that_was_put_back_nothing_is_missed_by_who_dies_soon(tmp_path):
    older = LogPlace("another", 9, 9)
    with queue(tmp_path) as found:
        found.reached(older)
        log = Commits([commit("1"), commit("2")])
        log.after = put_back(log, log.after)
        made = delivery(found, Way(*[REFUSED] * 9), log=log)
        made.step()
        log.commits.append(commit("3"))
        made.step()
    with queue(tmp_path) as found:  # killed before anything came through
        way = Way()
        steps(delivery(found, way, log=log))
    assert way.texts == ["3"]


def put_back(log, after):
    """As an engine does it: a place that is none of this log is now."""

    def found(place, wants):
        if place is not None and place.log != LOG:
            place = None
        return after(place, wants)

    return found


def test_an_event_is_given_up_also_by_processes_of_which_none_lives_so_long(tmp_path):
    moments = iter([100.0, 150.0, 170.0])
    for moment in moments:
        with queue(tmp_path, clock=lambda now=moment: now) as found:
            if moment == 100.0:
                found.put(event("a"))
                found.put(event("b"))
            way = Way(REFUSED)
            made = delivery(found, way, give_up_after=60.0, clock=lambda now=moment: now)
            made.drain(60)
            assert way.taken == []
            left = found.standing.waiting
    assert left == 1
    with queue(tmp_path, clock=lambda: 171.0) as found:
        way = Way(TAKEN, REFUSED)
        delivery(found, way, give_up_after=60.0, clock=lambda: 171.0).drain(60)
        assert [each.kind for each in way.taken] == ["dropped"]
        assert found.standing.waiting == 1  # the next has a time of its own
