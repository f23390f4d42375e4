"""What is planned for the edges of a list, and what is refused before anything is made."""

import pytest

from common.errors import UsageError
from receiver.operator.edges.enrolment import (
    EdgeFiles,
    EnrolledEdge,
    ListedEdge,
    enrolment_plan,
    read_edges,
)
from receiver.operator.views.sender_views import SenderView
from receiver.operator.views.token_views import TokenView

A, B, NEW = "a" * 32, "b" * 32, "c" * 32
TOKEN = "tsf_0a1b2c3d_secret"  # of no centre


def rows(text):
    return read_edges(text.splitlines(keepends=True))


def planned(text, files=None, senders=(), tokens=(), **given):
    return enrolment_plan(rows(text), files or {}, senders, tokens, lambda: NEW, **given)


def refused(*given, **more):
    with pytest.raises(UsageError) as caught:
        planned(*given, **more)
    return caught.value.message


def token(**given):
    given = {"id": "0a1b2c3d", "role": "sender", "sender": A, "note": "plant-8", **given}
    return TokenView(**given)


def test_a_list_has_labels_scopes_and_uuids():
    text = f'label, sender,scope\nplant-8,{A},root.a.** root.b.**\n\n"Werk 9, Süd",,\n'
    assert rows(text) == [
        ListedEdge(line=2, label="plant-8", scope=("root.a.**", "root.b.**"), sender=A),
        ListedEdge(line=4, label="Werk 9, Süd"),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "line 1: : expected a head with label"),
        ("plant-8\n", "line 1: plant-8: expected a head"),
        ("label,token\n", "expected a head"),
        ("label,label\n", "expected a head"),
        ("label,scope\na,b,c\n", "line 2: expected as many fields"),
        ("label,scope\na\n", "line 2: expected as many fields"),
        ("label\n../etc/passwd\n", "line 2: label '../etc/passwd': expected"),
        ("label\na/b\n", "line 2: label 'a/b'"),
        ('label\n""\n', "line 2: label ''"),
        ("label\na\x1b[31m\n", "line 2: label 'a\\x1b[31m'"),
        ("label,sender\na,A\n", "line 2: sender 'A': expected 32"),
        ("label,scope\na,root..b\n", "line 2: "),
        ("label\na\nb\na\n", "line 4: label a is that of line 2, too"),
        (f"label,sender\na,{A}\nb,{A}\n", f"line 3: sender {A} is that of line 2, too"),
        ('label\n"a\n', "not valid CSV"),
    ],
)
def test_a_wrong_list_is_refused_with_the_line(text, said):
    with pytest.raises(UsageError) as caught:
        rows(text)
    assert said in caught.value.message


def test_all_that_is_wrong_is_said_at_once_and_a_long_list_of_it_is_cut():
    with pytest.raises(UsageError) as caught:
        rows("label\n" + "/\n" * 30)
    lines = caught.value.message.splitlines()
    assert (len(lines), lines[-1]) == (21, "and 10 more")


def test_a_new_edge_gets_a_uuid_and_a_known_one_keeps_its_own():
    text = f"label,sender\nplant-7,{A}\nplant-8,\nplant-9,\n"
    assert planned(text, {"plant-8": EdgeFiles(uuid=B)}) == [
        EnrolledEdge(label="plant-7", sender=A),
        EnrolledEdge(label="plant-8", sender=B),
        EnrolledEdge(label="plant-9", sender=NEW),
    ]


def test_what_a_sender_calls_itself_is_asked_about_and_binds_nobody():
    known = [SenderView(uuid=A, label="plant-8"), SenderView(uuid=B, label="plant-9", removed=True)]
    said = refused("label\nplant-8\nplant-9\n", senders=known)
    assert said.startswith(f"line 2: plant-8: sender {A} calls itself so: say in the column sender")
    assert "plant-9" not in said
    text = f"label,sender\nplant-8,{B}\n"
    (edge,) = planned(text, senders=known, tokens=[token(sender=B, id="1")], renew=True)
    assert edge.sender == B, "whoever else calls itself so"


def test_two_uuids_of_one_edge_are_refused_with_where_they_are_from():
    said = refused(f"label,sender\nplant-8,{A}\n", {"plant-8": EdgeFiles(uuid=B)})
    assert f"line 2: plant-8: it is {A} by the list, {B} by its .uuid file" in said


def test_two_edges_with_one_uuid_file_are_refused():
    files = {each: EdgeFiles(uuid=A) for each in ("plant-8", "plant-9")}
    said = refused("label\nplant-8\nplant-9\n", files)
    assert f"line 3: uuid {A} is that of line 2, too" in said


def test_what_has_its_token_is_kept():
    files = {"plant-8": EdgeFiles(token=TOKEN, uuid=A)}
    kept = EnrolledEdge(label="plant-8", sender=A, token="0a1b2c3d", state="kept")
    assert planned("label\nplant-8\n", files, tokens=[token()]) == [kept]
    # Also where the centre knows the edge by now, and its uuid file is gone.
    here = [SenderView(uuid=A, label="plant-8")]
    files = {"plant-8": EdgeFiles(token=TOKEN)}
    assert planned("label\nplant-8\n", files, here, [token()]) == [kept]


@pytest.mark.parametrize(
    ("files", "there", "said"),
    [
        (EdgeFiles(), [token()], "it has token 0a1b2c3d already, whose file is not here"),
        (EdgeFiles(uuid=A), [token(note="x")], "it has token 0a1b2c3d already"),
        (EdgeFiles(token="x"), [token()], "holds no token"),
        (EdgeFiles(token=TOKEN), [], "is none of this centre, or was revoked"),
        (EdgeFiles(token=TOKEN), [token(role="reader")], "is none of this centre"),
        (EdgeFiles(token=TOKEN, uuid=B), [token()], f"is for {A}, not {B}"),
        (EdgeFiles(token=TOKEN), [token(scope=["root.x"])], "has another scope, root.x"),
        (EdgeFiles(token=TOKEN), [token(allow_deletes=False)], "0a1b2c3d may not delete: revoke"),
        (EdgeFiles(token=TOKEN), [token(expires=-1.0)], "0a1b2c3d has ended"),
        (EdgeFiles(uuid="x"), [], ".uuid file is damaged"),
    ],
)
def test_what_does_not_go_with_what_is_there_is_refused(files, there, said):
    assert said in refused("label\nplant-8\n", {"plant-8": files}, (), there)


def test_renew_makes_another_token_for_the_same_uuid():
    (edge,) = planned("label\nplant-8\n", tokens=[token()], renew=True)
    assert edge == EnrolledEdge(label="plant-8", sender=A)
