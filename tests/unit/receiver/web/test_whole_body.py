"""A body in one piece of memory."""

from __future__ import annotations

from receiver.web.server.whole_body import Spares, WholeBody


def test_it_is_filled_read_in_place_and_read_as_a_file():
    body = WholeBody(10, Spares())
    assert (len(body), bool(body), bytes(body.whole())) == (0, True, b"")
    for piece in (b"abc", b"", b"defg", b"hij"):
        body.append(piece)
    assert (len(body), bytes(body.whole())) == (10, b"abcdefghij")
    file = body.getfile()
    assert (file.read(4), file.read(), file.read()) == (b"abcd", b"efghij", b"")
    whole = body.whole()
    body.close()
    assert bytes(whole) == b"abcdefghij", "whoever has it keeps it"
    assert len(body) == 0


def test_what_did_not_come_is_not_there():
    body = WholeBody(10, Spares())
    body.append(b"abc")
    assert (bytes(body.whole()), body.read()) == (b"abc", b"abc")


def test_what_is_put_in_its_room_is_taken_without_a_copy():
    body = WholeBody(1 << 17, Spares())
    for piece in (b"abc", b"defg"):
        room = body.room()
        room[: len(piece)] = piece
        body.append(room[: len(piece)])
    assert bytes(body.whole()) == b"abcdefg"
    assert len(body.room()) == (1 << 17) - 7


def test_memory_serves_the_next_body_once_nobody_looks_at_it():
    spares = Spares()
    first = WholeBody(1 << 17, spares)
    first.append(b"a" * (1 << 17))
    looked_at = first.whole()
    first.close()
    second = WholeBody(1 << 17, spares)
    second.append(b"b" * (1 << 17))
    assert set(looked_at) == {ord("a")}, "whoever has it keeps it"
    memory = second.room().obj
    second.close()
    third = WholeBody(1 << 16, spares)
    assert third.room().obj is memory
    assert (len(third), len(third.room()), bytes(third.whole())) == (0, 1 << 16, b"")
    assert WholeBody(1 << 17, spares).room().obj is not memory, "it has it"


def test_what_nobody_used_between_two_sweeps_is_let_go():
    spares = Spares()
    memory = spares.take(1 << 17)
    spares.give(memory)
    spares.sweep()
    assert spares.take(1 << 17) is memory
    spares.give(memory)
    spares.sweep()
    spares.sweep()
    assert spares.take(1 << 17) is not memory


def test_bodies_that_never_come_hold_few_pages_of_those_before_them():
    spares, announced = Spares(), []
    for _ in range(20):
        came = WholeBody(1 << 17, spares)
        memory = came.room().obj
        came.close()
        body = WholeBody(1 << 17, spares)
        announced.append((body, body.room().obj is memory))
    assert [has_pages for _, has_pages in announced] == [True] * 4 + [False] * 16
    memory = announced[0][0].room().obj
    announced[0][0].close()
    assert WholeBody(1 << 17, spares).room().obj is memory, "with one of them over"
