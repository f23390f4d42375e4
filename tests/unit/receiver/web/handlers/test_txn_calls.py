"""Transactions over HTTP: statements with an id, ends, outcomes, and the client of a session."""

import threading
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from common import wire
from common.errors import UnreachableError
from receiver.operator.edges.tokens import make_token
from receiver.txn.errors import TxnActiveError, TxnEndedError, TxnMissingError, WriteConflictError
from receiver.web.app import site_of
from receiver.web.txn_client import TxnClient

JSON = {"Content-Type": "application/json"}


class Server:
    """The application in the place of `OperatorClient`; loses answers when told to."""

    def __init__(self, client, headers):
        self._client = client
        self._headers = headers
        self.loses: list[tuple[str, str]] = []

    def ask(self, method, path, kind, *, body=None):
        return msgspec.json.decode(self._call(method, path, body), type=kind)

    def tell(self, method, path, body=None):
        self._call(method, path, body)

    def _call(self, method, path, body):
        lost = next((each for each in self.loses if path.endswith(each[0])), None)
        if lost is not None:
            self.loses.remove(lost)
        if lost is not None and lost[1] == "request":
            raise UnreachableError("lost on its way")
        data = None if body is None else wire.encode(body)
        answer = self._client.open(path, method=method, data=data, headers=self._headers | JSON)
        if lost is not None:
            raise UnreachableError("lost on its way back")
        if answer.status_code >= 300:
            raise wire.from_problem(msgspec.json.decode(answer.get_data(), type=wire.Problem))
        return answer.get_data()


@pytest.fixture
def server(client, operator):
    return Server(client, operator)


@pytest.fixture
def session(server):
    return TxnClient(lambda: server, sleep=lambda _: None)


@pytest.fixture
def other(server):
    return TxnClient(lambda: server, sleep=lambda _: None)


def shown(session, statement="show timeseries"):
    return [row[0] for row in session.run(statement).rows]


def test_a_session_sees_what_it_writes_and_others_do_not(session, other):
    session.run("begin")
    session.run("create timeseries root.sg.d.s with datatype=INT32")
    assert (shown(session), shown(other)) == (["root.sg.d.s"], [])
    assert session.run("commit").message == "committed"
    assert session.txn is None
    assert shown(other) == ["root.sg.d.s"]


def test_what_is_changed_in_one_has_no_commit_before_its_own(session, other):
    session.run("begin")
    made = session.run("create timeseries root.sg.d.s with datatype = FLOAT")
    assert (made.commit, made.message) == (0, "1 timeseries created")
    theirs = other.run("create timeseries root.sg.d.t with datatype = FLOAT")
    ended = session.run("commit")
    assert ended.commit > theirs.commit > made.commit


def test_a_rollback_leaves_nothing(session, other):
    session.begin()
    session.run("set storage group to root.sg")
    session.run("rollback")
    assert session.txn is None
    session.begin()
    session.run("set storage group to root.sg")
    session.close()
    assert shown(other, "show storage group") == []
    assert other.run("show transactions").rows == []


def test_a_session_has_one_transaction(session):
    session.run("begin")
    with pytest.raises(TxnActiveError):
        session.begin()
    with pytest.raises(TxnActiveError):
        session.run("begin")
    assert session.txn is not None
    session.rollback()
    for end in (session.commit, session.rollback, lambda: session.run("commit")):
        with pytest.raises(TxnMissingError):
            end()


def test_they_are_shown_to_operators_with_who_began_them(session, server, client, operator, node):
    session.run("begin")
    session.run("set storage group to root.sg")
    ((txn, who, read_ts, age, idle, operations),) = session.run("show transactions").rows
    assert (str(txn), who, operations) == (session.txn, "local-operator", 1)
    (row,) = msgspec.json.decode(client.get("/v1/txn", headers=operator).get_data())["transactions"]
    assert (row["txn"], row["read_ts"], row["operations"]) == (session.txn, read_ts, 1)
    assert age >= idle >= 0
    reader = {"Authorization": f"Bearer {make_token(node.engine, 'reader').token}"}
    for call in (
        client.get("/v1/txn", headers=reader),
        client.post("/v1/txn", headers=reader),
        client.get(f"/v1/txn/{txn}", headers=reader),
        client.delete(f"/v1/txn/{txn}", headers=reader),
        client.post(f"/v1/txn/{txn}/commit", headers=reader),
    ):
        assert call.status_code == 403
    asks = {"statement": "show timeseries", "txn": str(txn)}
    answer = client.post("/v1/sql", data=msgspec.json.encode(asks), headers=reader | JSON)
    assert answer.status_code == 403


def test_a_conflict_ends_it_and_the_session_goes_on(session, other):
    session.begin()
    session.run("set storage group to root.sg")
    other.run("set storage group to root.sg")
    with pytest.raises(WriteConflictError, match=r"root\.sg"):
        session.run("commit")
    assert session.txn is None
    assert shown(session, "show storage group") == ["root.sg"]


def test_a_refused_statement_leaves_it_open(session):
    session.begin()
    session.run("set storage group to root.sg")
    with pytest.raises(Exception, match="there already"):
        session.run("set storage group to root.sg")
    assert session.txn is not None
    session.commit()


@pytest.mark.parametrize("how", ["answer", "request"])
@pytest.mark.parametrize("by", ["call", "commit;", "-- all of it\nCOMMIT\t; ", "commit /* it */"])
def test_a_commit_whose_answer_is_lost_is_found_out(session, other, server, node, how, by):
    session.begin()
    session.run("set storage group to root.sg")
    server.loses = [("/commit" if by == "call" else "/sql", how)]
    if by == "call":
        commit = session.commit()
    else:
        answer = session.run(by)
        commit = answer.commit
        assert answer.message == "committed"
    assert session.txn is None
    assert commit == node.engine.newest_commit
    assert shown(other, "show storage group") == ["root.sg"]


@pytest.mark.parametrize("by", ["call", "statement"])
def test_a_commit_is_asked_for_again_when_the_receiver_is_back(session, server, node, by):
    txn = session.begin()
    session.run("set storage group to root.sg")
    lost = ("/commit" if by == "call" else "/sql", "answer")
    server.loses = [lost] + [(f"/v1/txn/{txn}", "request")] * 5

    def commit():
        return session.commit() if by == "call" else session.run("commit").commit

    with pytest.raises(UnreachableError):
        commit()
    assert session.txn == txn
    assert commit() == node.engine.newest_commit
    assert session.txn is None


def test_what_was_rolled_back_is_not_said_to_be_committed(session, server, node):
    txn = session.begin()
    session.run("set storage group to root.sg")
    node.transactions.get(int(txn)).rollback()
    server.loses = [("/commit", "request")]
    with pytest.raises(TxnEndedError, match="rolled back"):
        session.commit()
    assert session.outcome(txn).state == "rolled back"


def test_a_commit_that_is_asked_for_again_is_answered_the_same(session, server, client, operator):
    txn = session.begin()
    session.run("set storage group to root.sg")
    commit = session.commit()
    again = client.post(f"/v1/txn/{txn}/commit", headers=operator)
    assert msgspec.json.decode(again.get_data()) == {
        "txn": txn, "state": "committed", "commit": commit,
    }  # fmt: skip
    assert client.post("/v1/txn/5/commit", headers=operator).status_code == 404
    assert client.get("/v1/txn/x", headers=operator).status_code == 400


@pytest.mark.parametrize("first", ["call", "statement"])
def test_a_commit_that_is_asked_for_again_while_it_goes_on_is_answered_the_same(
    session, app, operator, node, monkeypatch, first
):
    txn = session.begin()
    session.run("set storage group to root.sg")
    writing, asked = threading.Event(), threading.Event()
    really = node.engine.commit

    def slowly(*given):
        writing.set()
        assert asked.wait(10)
        return really(*given)

    monkeypatch.setattr(node.engine, "commit", slowly)
    get = node.transactions.get

    def looked(ident):
        found = get(ident)
        if writing.is_set():
            asked.set()
        return found

    monkeypatch.setattr(node.transactions, "get", looked)

    def commit():
        return app.test_client().post(f"/v1/txn/{txn}/commit", headers=operator)

    with ThreadPoolExecutor(1) as threads:
        one = threads.submit(commit if first == "call" else lambda: session.run("commit").commit)
        assert writing.wait(10)
        again = commit()
        told = one.result(10) if first == "statement" else None
        told = told or msgspec.json.decode(one.result(10).get_data())["commit"]
    assert again.status_code == 200
    assert msgspec.json.decode(again.get_data()) == {
        "txn": txn, "state": "committed", "commit": told,
    }  # fmt: skip


def test_an_answer_in_pages_ends_with_the_transaction(session, server, client, operator):
    session.begin()
    session.run("create aligned timeseries root.sg.d(a INT32, b INT32, c INT32)")
    page = session.run("show timeseries", size=1)
    more = client.get(f"/v1/sql/{page.next}", headers=operator)
    assert len(msgspec.json.decode(more.get_data())["rows"]) == 1
    session.rollback()
    assert client.get(f"/v1/sql/{page.next}", headers=operator).status_code == 409


def test_the_receivers_end_is_that_of_its_transactions(session, app):
    txn = session.begin()
    node = site_of(app).node
    held = node.transactions.get(int(txn))
    node.close()
    assert held.state == "rolled back"


def test_files_are_told_of_once_it_has_written_too_and_uploads_outside(session):
    session.begin()
    session.run("set storage group to root.sg")
    assert session.run("show files").rows == session.run("show partitions").rows == []
    with pytest.raises(Exception, match="as it is now"):
        session.run("show upload")
    for statement in ("create snapshot for schema", "delete storage group root.sg with data"):
        with pytest.raises(Exception, match="transaction"):
            session.run(statement)
