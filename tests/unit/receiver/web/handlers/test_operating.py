import hashlib

import msgspec
import pytest

from common.errors import ForbiddenError
from receiver.operator.views import load_wire, verdict_wire, wire
from receiver.operator.views.file_views import FilesPage
from receiver.operator.views.retired_views import RetiredPage, RetiredView
from receiver.operator.views.status_views import StatusView
from receiver.operator.views.token_views import OwnersPage, TokenMade
from receiver.principal import Principal
from receiver.web.app import site_of
from receiver.web.call import Call
from tests.support.node_world import A, B, Edge, path_of, sender, tsfile

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def ask(client, operator):
    def ask(method, path, kind=None, body=None, expected=200):
        data = None if body is None else msgspec.json.encode(body)
        answer = client.open(path, method=method, data=data, headers=operator | JSON)
        assert answer.status_code == expected, answer.get_data()
        return None if kind is None else msgspec.json.decode(answer.get_data(), type=kind)

    return ask


@pytest.fixture
def loaded(node):
    edge = Edge(node, uuid=A)
    edge.round({path_of(1): tsfile("root.sg.d1"), path_of(2): tsfile("root.sg.d2", first=100)})
    return edge


def test_status(ask, loaded):
    status = ask("GET", "/v1/status", StatusView)
    assert (status.files, status.devices, status.senders, status.ready) == (2, 2, 1, True)


def test_senders_and_accepting_one(ask, loaded):
    (found,) = ask("GET", "/v1/senders", wire.SendersAnswer).senders
    assert (found.uuid, found.files) == (A, 2)
    ask("POST", f"/v1/senders/{A}/accept", expected=204)
    ask("POST", f"/v1/senders/{B}/accept", expected=404)


def test_files_in_pages(ask, loaded):
    first = ask("GET", "/v1/files?limit=1", FilesPage)
    second = ask("GET", f"/v1/files?limit=1&after={first.next}", FilesPage)
    assert [f.path for f in first.files + second.files] == [path_of(1), path_of(2)]
    assert ask("GET", f"/v1/files?sender={B}", FilesPage).files == []
    assert ask("GET", "/v1/files?state=deleted", FilesPage).files == []
    ask("GET", "/v1/files?state=odd", expected=400)


def test_owners_are_released_and_transferred(ask, loaded, node):
    page = ask("GET", "/v1/owners", OwnersPage)
    assert {each.device: each.sender for each in page.owners} == {"root.sg.d1": A, "root.sg.d2": A}
    Edge(node, uuid=B).check()
    Edge(node, uuid=B).round({path_of(3, sg="root.other"): tsfile("root.other.d")})
    body = wire.TransferRequest(device="root.sg.d1", sender=B)
    assert ask("POST", "/v1/owners/transfer", wire.OwnersMoved, body).commit
    ask("POST", "/v1/owners/release", wire.OwnersMoved, wire.ReleaseRequest(device="root.sg.d2"))
    page = ask("GET", "/v1/owners", OwnersPage)
    assert {each.device: each.sender for each in page.owners} == {
        "root.other.d": B,
        "root.sg.d1": B,
    }
    unknown = wire.ReleaseRequest(device="<script>alert(1)</script>")
    ask("POST", "/v1/owners/release", None, unknown, expected=404)


def test_files_of_this_machine_are_loaded_and_the_outcome_is_asked_for(ask, loaded, tmp_path):
    place = tmp_path / "old" / path_of(7)
    place.parent.mkdir(parents=True)
    place.write_bytes(tsfile("root.sg.new"))
    request = load_wire.CentreLoadRequest(task="5" * 32, paths=[str(tmp_path / "old")])
    done = ask("POST", "/v1/loads", load_wire.CentreLoadAnswer, request)
    while not done.done:
        done = ask("GET", f"/v1/loads/{request.task}", load_wire.CentreLoadAnswer)
    assert [each.result for each in done.files] == ["loaded"]
    assert ask("GET", f"/v1/loads/{request.task}", load_wire.CentreLoadAnswer) == done
    ask("GET", f"/v1/loads/{'6' * 32}", expected=404)
    odd = load_wire.CentreLoadRequest(task="odd", paths=["/"])
    ask("POST", "/v1/loads", None, odd, expected=400)


def test_quarantine_is_listed_and_dropped(ask, loaded, node):
    bad = b"no TsFile"
    view = node.uploads.create(sender(A), A, len(bad), {"path": path_of(9)})

    with pytest.raises(Exception, match="TsFile"):
        node.uploads.patch(sender(A), view.id, 0, bad)
    (entry,) = ask("GET", "/v1/quarantine", wire.QuarantineAnswer).entries
    assert (entry.path, entry.hold) == (path_of(9), True)
    key = wire.QuarantineKey(sender=entry.sender, path=entry.path, digest=entry.digest)
    ask("POST", "/v1/quarantine/retry", None, key, expected=422)
    ask("POST", "/v1/quarantine/drop", None, key, expected=204)
    ask("POST", "/v1/quarantine/drop", None, key, expected=404)
    assert ask("GET", f"/v1/quarantine?sender={A}", wire.QuarantineAnswer).entries == []


def test_retired_files_are_listed_shown_and_dropped(ask, loaded):
    loaded.round({}, [path_of(1), path_of(2)])
    first = ask("GET", "/v1/retired?limit=1", RetiredPage)
    second = ask("GET", f"/v1/retired?after={first.next}", RetiredPage)
    assert [each.path for each in first.files + second.files] == [path_of(1), path_of(2)]
    assert ask("GET", "/v1/retired?state=superseded", RetiredPage).files == []
    ask("GET", "/v1/retired?state=live", expected=400)
    physical = first.files[0].physical
    shown = ask("GET", f"/v1/retired/file?physical={physical}", RetiredView)
    assert (shown.path, shown.state) == (path_of(1), "retired")
    key = wire.RetiredKey(physical=physical)
    ask("POST", "/v1/retired/drop", None, key, expected=204)
    ask("POST", "/v1/retired/drop", None, key, expected=409)
    ask("POST", "/v1/retired/drop", None, wire.RetiredKey(physical="no"), expected=404)
    assert [f.path for f in ask("GET", "/v1/retired", RetiredPage).files] == [path_of(2)]


def test_tokens_are_made_listed_and_revoked(ask, client):
    request = wire.TokenRequest(role="sender", sender=A, scope=["root.a.**"], note="edge 7")
    made = ask("POST", "/v1/tokens", TokenMade, request, expected=201)
    sending = {"Authorization": f"Bearer {made.token}"}
    assert client.get("/sync/v1/inventory", headers=sending).status_code == 200
    (listed,) = ask("GET", "/v1/tokens", wire.TokensAnswer).tokens
    assert (listed.id, listed.note) == (made.id, "edge 7")
    answer = client.get("/v1/tokens", headers={"Authorization": "Bearer operators-secret"})
    for secret in (made.token, hashlib.sha256(made.token.encode()).hexdigest()):
        assert secret not in answer.get_data(as_text=True)
    ask("DELETE", f"/v1/tokens/{made.id}", expected=204)
    assert client.get("/sync/v1/inventory", headers=sending).status_code == 401
    ask("DELETE", f"/v1/tokens/{made.id}", expected=404)


@pytest.mark.parametrize(
    "request_",
    [
        wire.TokenRequest(role="king"),
        wire.TokenRequest(role="sender"),
        wire.TokenRequest(role="sender", sender="x"),
        wire.TokenRequest(role="reader", sender=A),
        wire.TokenRequest(role="reader", owners=[A]),
    ],
)
def test_a_token_that_makes_no_sense_is_refused(ask, request_):
    ask("POST", "/v1/tokens", None, request_, expected=400)


def test_every_operators_call_is_closed_to_everybody_else(app, client, loaded):
    from receiver.operator.edges.tokens import make_token
    from receiver.web.routes import Role

    engine = site_of(app).node.engine
    tokens = [make_token(engine, "sender", sender=A).token, make_token(engine, "reader").token]
    tokens.append(make_token(engine, "writer").token)
    calls = [route for route in site_of(app).routes if route.role is Role.OPERATOR]
    assert len(calls) == 73
    for route in calls:
        path = route.path.replace("<sender>", A).replace("<token>", "t")
        assert client.open(path, method=route.method).status_code == 401
        for token in tokens:
            headers = {"Authorization": f"Bearer {token}"}
            assert client.open(path, method=route.method, headers=headers).status_code == 403


@pytest.mark.parametrize("role", ["sender", "reader", "writer", "nobody"])
def test_a_handler_has_the_receiver_as_operators_have_it_for_operators_alone(app, role):
    site = site_of(app)
    call = Call(site, Principal("operator", None, (), None, ""), app.request_class({}), {})
    assert call.operator is site.node.operator
    other = Call(site, Principal(role, None, (), None, ""), app.request_class({}), {})
    with pytest.raises(ForbiddenError):
        _ = other.operator


def test_verdicts_are_recorded_and_shown(ask, loaded):
    one, two = ask("GET", "/v1/files", FilesPage).files
    request = verdict_wire.VerdictsRequest(
        verdicts=[
            verdict_wire.VerdictEntry(physical=one.physical, md5=one.md5),
            verdict_wire.VerdictEntry(physical=two.physical, md5=two.md5, bad="its sum differs"),
        ]
    )
    answer = ask("POST", "/v1/verdicts", verdict_wire.VerdictsAnswer, request)
    assert (answer.verified, answer.quarantined, answer.stale) == (1, 1, 0)
    assert ask("POST", "/v1/verdicts", verdict_wire.VerdictsAnswer, request) == answer
    (good,) = ask("GET", "/v1/files?unverified=false", FilesPage).files
    assert good.verified > good.created
    assert ask("GET", "/v1/files?unverified=true", FilesPage).files == []
    ask("GET", "/v1/files?unverified=odd", expected=400)
    (bad,) = ask("GET", "/v1/quarantine", wire.QuarantineAnswer).entries
    assert (bad.path, bad.reason) == (two.path, "its sum differs")


def test_verdicts_that_are_none_are_refused_and_change_nothing(ask, loaded, client, node):
    before = node.engine.newest_commit
    md5 = "0" * 32
    for bad in (
        {"verdicts": [{"physical": "x", "md5": md5.upper().replace("0", "A")}]},
        {"verdicts": [{"physical": "x", "md5": "0" * 31}]},
        {"verdicts": [{"physical": "x"}]},
        {"verdicts": "all"},
        {},
    ):
        ask("POST", "/v1/verdicts", body=bad, expected=400)
    many = {"verdicts": [{"physical": "x", "md5": md5}] * 10_001}
    ask("POST", "/v1/verdicts", body=many, expected=413)
    assert client.post("/v1/verdicts", json={"verdicts": []}).status_code in (401, 403)
    assert node.engine.newest_commit == before
