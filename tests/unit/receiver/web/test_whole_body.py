"""A body in one piece of memory."""

from __future__ import annotations

from receiver.web.server.whole_body import WholeBody


def test_it_is_filled_read_in_place_and_read_as_a_file():
    body = WholeBody(10)
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
    body = WholeBody(10)
    body.append(b"abc")
    assert (bytes(body.whole()), body.read()) == (b"abc", b"abc")
