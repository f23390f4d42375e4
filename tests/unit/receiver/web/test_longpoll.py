import contextlib
import threading

from receiver.web.longpoll import MAX_WAIT, LongPolls


class Task:
    """Is asked, and waits on a clock of its own."""

    def __init__(self, done_at=1e9):
        self.now = 0.0
        self.done_at = done_at
        self.asked = []

    def clock(self):
        return self.now

    def ask(self, seconds):
        self.asked.append(seconds)
        self.now += min(seconds, max(0.0, self.done_at - self.now))
        return self.now >= self.done_at


def test_the_answer_comes_as_soon_as_it_is_done():
    task = Task(done_at=3.5)
    assert LongPolls(1, task.clock).wait(20, task.ask, bool)
    assert task.now == 3.5


def test_nobody_waits_longer_than_the_bound():
    task = Task()
    assert not LongPolls(1, task.clock).wait(10_000, task.ask, bool)
    assert task.now == MAX_WAIT


def test_without_a_wait_the_answer_comes_at_once():
    task = Task()
    LongPolls(1, task.clock).wait(0, task.ask, bool)
    assert task.asked == [0.0]


def test_waiting_calls_cannot_take_every_thread():
    polls = LongPolls(2)
    entered, leave = threading.Semaphore(0), threading.Event()

    def ask(seconds):
        entered.release()
        return leave.wait(60)

    threads = [threading.Thread(target=polls.wait, args=(20, ask, bool)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert entered.acquire(timeout=60)
    third = Task()
    polls.wait(20, third.ask, bool)
    assert third.asked == [0.0]
    leave.set()
    for thread in threads:
        thread.join()
    fourth = Task(done_at=1)
    LongPolls(1, fourth.clock).wait(20, fourth.ask, bool)
    assert fourth.asked[0] > 0


def test_a_place_is_given_back_when_asking_fails():
    polls = LongPolls(1)

    def fail(seconds):
        raise RuntimeError

    for _ in range(3):
        with contextlib.suppress(RuntimeError):
            polls.wait(1, fail, bool)
    task = Task(done_at=0)
    polls.wait(1, task.ask, bool)
    assert task.asked[0] > 0


def test_a_server_that_stops_lets_nobody_wait():
    task = Task()
    polls = LongPolls(1, task.clock)
    polls.close()
    polls.wait(20, task.ask, bool)
    assert task.asked == [0.0]
