"""Of several addresses whichever leads is asked, and a token goes to no other one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from common import wire
from common.errors import (
    BusyError,
    ConfigError,
    ConflictError,
    NotTheWriterError,
    UnreachableError,
    UsageError,
)
from receiver.follower.followed_receiver import FollowedReceiver
from receiver.operator.views.log_file_views import LogFilesView, SegmentFile
from receiver.spark.option_values import WrongValueError, receiver_url
from receiver.spark.remote_catalogue import RemoteCatalogue
from receiver.storage.reading.reader_calls import CallAnswer, ReaderCalls
from receiver.storage.reading.several_addresses import Failover, SlowAnswerError, addresses_in
from receiver.storage.reading.stored_place import ReceiverAddress

A, B, C = "https://a:1", "https://b:1", "https://c:1"
LOST = NotTheWriterError("not master any more")
AWAY = UnreachableError("nobody listens")
Said = Callable[[str], bytes]


@pytest.fixture
def centre(monkeypatch: pytest.MonkeyPatch) -> dict[str, Exception | Said]:
    """What each address says, by a test."""
    says: dict[str, Exception | Said] = {}

    def ask(_: ReaderCalls, url: str, *__: object) -> CallAnswer:
        base = url[: len(A)]
        asked.append(base)
        said = says[base]
        if isinstance(said, Exception):
            raise said
        return CallAnswer(200, {}, said(url[len(A) :]))

    asked: list[str] = []
    says["asked"] = lambda _: " ".join(asked).encode()
    monkeypatch.setattr(ReaderCalls, "_ask", ask)
    return says


def calls(text: str, **more: object) -> ReaderCalls:
    return ReaderCalls(text, token="t", ca_cert=None, what="option receiver", **more)  # type: ignore[arg-type]


def test_the_one_that_leads_is_asked_and_from_then_on_first() -> None:
    says: Mapping[str, Exception | str] = {A: LOST, B: AWAY, C: "here"}
    asked = []

    def ask(url: str) -> str:
        asked.append(url)
        said = says[url]
        if isinstance(said, Exception):
            raise said
        return said

    leads = Failover([A, B, C])
    assert (leads.ask(ask), leads.current, asked) == ("here", C, [A, B, C])
    asked.clear()
    assert (leads.ask(ask), asked) == ("here", [C])
    says = {A: "back", B: AWAY, C: LOST}
    asked.clear()
    assert (leads.ask(ask), leads.current, asked) == ("back", A, [C, A])


def test_what_may_pass_is_said_before_that_another_one_has_lost_its_place() -> None:
    """Else nobody would come back while a lease runs out: the one is fenced, the next not there."""

    def ask(error: Exception) -> None:
        raise error

    with pytest.raises(UnreachableError):
        Failover([LOST, AWAY]).ask(ask)
    with pytest.raises(UnreachableError):
        Failover([AWAY, LOST]).ask(ask)
    with pytest.raises(NotTheWriterError):
        Failover([LOST, LOST]).ask(ask)


def test_where_none_says_anything_each_is_named_with_its_own_reason(centre) -> None:
    here = UnreachableError(f"{B}/x does not answer: timed out", retry_after=3.0)
    centre |= {A: LOST, B: here, C: AWAY}
    with pytest.raises(UnreachableError) as refused:
        calls(f"{A},{B},{C}").get("/x", {})
    said = f"{A}: {LOST.message}; {here.message}; {C}: {AWAY.message}"
    assert (str(refused.value), refused.value.retry_after) == (said, 3.0)
    with pytest.raises(UnreachableError) as refused:
        calls(B).get("/x", {})
    assert refused.value is here


def test_one_that_hangs_is_named_beside_one_that_is_away() -> None:
    def ask(name: str, soon: float | None) -> str:
        if name == A:
            raise (UnreachableError if soon is None else SlowAnswerError)(f"{name} hangs")
        raise AWAY

    with pytest.raises(UnreachableError) as refused:
        Failover([A, B]).ask_soon(ask)
    assert str(refused.value) == f"{A} hangs; {B}: {AWAY.message}"
    assert not isinstance(refused.value, SlowAnswerError)


def test_a_refusal_of_the_one_that_leads_is_nobody_elses(centre) -> None:
    centre |= {A: BusyError("too many"), B: lambda _: b"x"}
    with pytest.raises(BusyError):
        calls(f"{A},{B}").get("/x", {})
    assert centre["asked"]("") == A.encode()


def test_several_are_asked_until_one_leads_and_one_alone_is_not(centre) -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds
        if now[0] >= 15:
            centre[B] = lambda _: b"here"

    times = {"patience": 60.0, "monotonic": lambda: now[0], "sleep": sleep}
    centre |= {A: LOST, B: AWAY}
    asks = calls(f" {A}/ , {B}", **times)
    assert (asks.get("/x", {}), asks.url, now[0]) == (b"here", B, 15)
    centre[B] = AWAY
    now[0] = -1e9
    with pytest.raises(UnreachableError):
        asks.get("/x", {})
    assert -1e9 + 58 < now[0] <= -1e9 + 60
    now[0] = 0.0
    with pytest.raises(UnreachableError):
        calls(B, **times).get("/x", {})
    assert now[0] == 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        " , ",
        f"{A},http://b:1",
        "http://127.0.0.1:1,http://[",
        "ftp://127.0.0.1:1",
        "centre.example.com:8765",
        "https://",
    ],
)
def test_each_address_of_a_list_has_to_be_one_that_keeps_a_token_secret(text: str) -> None:
    with pytest.raises(UsageError, match="option receiver = "):
        calls(text)


@pytest.mark.parametrize("text", ["", f"{A},ftp://b", f"{A},https://x@b:1", f"{A},/srv/x"])
def test_an_option_with_several_addresses_has_nothing_else(text: str) -> None:
    assert receiver_url(f"{A}, {B}") == f"{A}, {B}"
    with pytest.raises(WrongValueError, match="expected the URL of a receiver"):
        receiver_url(text)


def test_the_catalogue_of_another_engine_is_not_taken_for_the_same(centre) -> None:
    def of(engine: str) -> Said:
        answer = wire.CatalogueAnswer(engine=engine, commit=7, entries=[])
        return lambda _: wire.encode(answer)

    centre |= {A: of("1" * 32), B: of("1" * 32)}
    found = RemoteCatalogue(ReceiverAddress(f"{A},{B}"), token="t", data_dirs=["/d"])
    centre[A] = LOST
    found.refresh()
    assert (found.uuid, found.newest) == ("1" * 32, 7)
    centre |= {A: of("2" * 32), B: AWAY}
    with pytest.raises(ConflictError, match=f"{A} is engine {'2' * 32}"):
        found.refresh()


def test_one_answer_is_not_made_of_what_two_know(centre) -> None:
    """Deletions of one that is behind, or of another engine, would leave points in it."""
    uuid = "1" * 32

    def given(engine: str, commit: int) -> Said:
        answers: dict[str, wire.Struct] = {
            "": wire.CatalogueAnswer(engine=engine, commit=commit, entries=[]),
            "/deletions": wire.NotedAnswer(engine=engine, commit=commit, entries=[]),
            "/compacted": wire.CompactedAnswer(engine=engine, commit=commit, entries=[]),
        }

        return lambda path: wire.encode(answers[path.removeprefix("/sync/v1/catalogue")])

    def loses_its_place(path: str) -> bytes:
        if path != "/sync/v1/catalogue":
            raise LOST
        return given(uuid, 9)(path)

    centre |= {A: loses_its_place, B: given(uuid, 9)}
    found = RemoteCatalogue(ReceiverAddress(f"{A},{B}"), token="t", data_dirs=["/d"])
    for at in (7, 9, 11):  # whatever moment is asked about
        assert (found.loads(at), found.stand_ins(at)) == (([], []), [])
    for other, error in ((given(uuid, 8), UnreachableError), (given("2" * 32, 9), ConflictError)):
        for asks in (found.loads, found.stand_ins):
            centre |= {A: loses_its_place, B: AWAY}
            found.refresh()
            centre[B] = other
            with pytest.raises(error):
                asks(9)


def test_a_follower_reads_the_log_where_it_was_said_to_be(centre) -> None:
    """Another master may have cut the same commits into other files."""
    view = LogFilesView(
        engine="1" * 32,
        incarnation=0,
        lsn=1,
        ts=1,
        checkpoints=[],
        segments=[SegmentFile(first_lsn=1, next_lsn=2, size=3)],
        tags_end=0,
        goes_on=True,
    )
    centre |= {A: LOST, B: lambda path: wire.encode(view) if path == "/v1/log" else b"abc"}
    followed = FollowedReceiver(f"{A},{B}", "token", None)
    found = followed.look()
    assert (followed.url, found.ts) == (B, 1)
    (name,) = [each.name for each in found.segments]
    assert [each.data for each in followed.read(found, name, 0, 3)] == [b"abc"]
    centre |= {A: lambda _: b"xyz", B: AWAY}
    with pytest.raises(UnreachableError):
        list(followed.read(found, name, 0, 3))
    followed.close()
    with pytest.raises(ConfigError, match="expected https"):
        FollowedReceiver(f"{A},http://b:1", "token", None)


class Answers:
    """Addresses, each of which answers after so many seconds; the clock goes on with them."""

    def __init__(self, **after: float) -> None:
        self.after = after
        self.asked: list[tuple[str, float | None]] = []
        self.now = 0.0

    def __call__(self, name: str, soon: float | None) -> str:
        self.asked.append((name, soon))
        took = self.after[name]
        if took < 0:
            raise AWAY
        if took > (60.0 if soon is None else soon):
            self.now += 60.0 if soon is None else soon
            raise (UnreachableError if soon is None else SlowAnswerError)("nothing comes")
        self.now += took
        return name


def test_one_that_hangs_costs_seconds_where_another_one_leads_and_is_asked_last_from_then_on() -> (
    None
):
    answers = Answers(a=1e9, b=0.1)
    leads = Failover(["a", "b"])
    assert (leads.ask_soon(answers), leads.current) == ("b", "b")
    assert answers.now == pytest.approx(4.1)
    assert leads.ask_soon(answers) == "b"
    assert answers.now == pytest.approx(4.2)


def test_one_that_is_slow_is_waited_for_where_no_other_one_leads_and_has_more_time_then() -> None:
    answers = Answers(a=6.0, b=-1)
    leads = Failover(["a", "b"])
    assert (leads.ask_soon(answers), leads.current) == ("a", "a")
    assert answers.asked == [("a", 4.0), ("b", 4.0), ("a", None)]
    answers.asked.clear()
    assert leads.ask_soon(answers) == "a"
    assert answers.asked == [("a", 8.0)]


def test_of_two_that_are_slow_each_is_waited_for() -> None:
    answers = Answers(a=1e9, b=20.0, c=-1)
    leads = Failover(["a", "b", "c"])
    assert (leads.ask_soon(answers), leads.current) == ("b", "b")
    answers = Answers(a=1e9, b=1e9)
    with pytest.raises(UnreachableError) as refused:
        Failover(["a", "b"]).ask_soon(answers)
    assert not isinstance(refused.value, SlowAnswerError)


def test_one_alone_has_its_whole_time() -> None:
    answers = Answers(a=30.0)
    assert Failover(["a"]).ask_soon(answers) == "a"
    assert answers.asked == [("a", None)]


def test_a_list_is_written_with_commas() -> None:
    assert addresses_in(f"{A}/, {B} ,,") == (A, B)
