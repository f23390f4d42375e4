"""Who is let onto the page, for how long, and in which way."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from common.config import AllowList
from receiver.operator.edges.tokens import make_token, revoke_token
from receiver.web.app import site_of
from receiver.web.ui.drawing.page_templates import link
from receiver.web.ui.page_sessions import PageSessions
from tests.support.node_world import A
from tests.support.page_reader import Person, Read

EVERYBODY = AllowList.parse(["0.0.0.0/0"])
PAGES = (
    "/ui/",
    f"/ui/edge/{A}",
    "/ui/files",
    "/ui/file",
    "/ui/groups",
    "/ui/groups/root.sg",
    "/ui/groups/root.sg/tree",
    "/ui/groups/root.sg/partitions",
    "/ui/owners",
    "/ui/quarantine",
    "/ui/deletes",
    "/ui/retired",
    "/ui/retired/file",
    "/ui/lost",
    "/ui/nodes",
    "/ui/node/0123",
    "/ui/tokens",
    "/ui/tasks",
    "/ui/history",
    "/ui/verification",
    "/ui/engine",
    f"/ui/do/accept?sender={A}",
)


@pytest.mark.parametrize("path", PAGES)
def test_nobody_sees_a_page_without_a_token(stranger, path):
    answer = stranger.ask("GET", path)
    assert answer.status_code == 303
    assert answer.headers["Location"] == link("login", next=path)


def test_every_page_is_in_the_list_above(app):
    rows = [each for each in site_of(app).routes if each.path.startswith("/ui/")]
    paths = {each.path for each in rows if each.method == "GET"}
    free = {"/ui/login", "/ui/static/<name>"}
    known = {
        each.partition("?")[0]
        .replace(A, "<sender>")
        .replace("root.sg", "<table>")
        .replace("accept", "<action>")
        .replace("0123", "<node>")
        for each in PAGES
    }
    assert paths - free == known


def test_a_login_leads_to_where_one_wanted_to_go(stranger):
    read = stranger.see("/ui/login?next=/ui/files%3Fedge%3Dx")
    assert read.fields()["next"] == "/ui/files?edge=x"
    answer = stranger.login("operators-secret", "/ui/files?edge=x")
    assert answer.headers["Location"] == "/ui/files?edge=x"
    assert "operators-secret" not in str(answer.headers)
    stranger.see("/ui/files")


@pytest.mark.parametrize(
    "wanted",
    ["//evil.example/", "https://evil.example", "/ui/\\evil", "/ui/a b", "/sync/v1", "", "/ui//\n"],
)
def test_a_login_leads_nowhere_else(stranger, wanted):
    assert stranger.login("operators-secret", wanted).headers["Location"] == "/ui/"


def test_the_cookie_is_for_the_page_alone(app, stranger, node):
    cookie = stranger.login("operators-secret").headers["Set-Cookie"]
    for part in ("HttpOnly", "SameSite=Strict", "Path=/ui/", "Max-Age=43200"):
        assert part in cookie
    assert cookie.startswith(f"tsferry-{node.engine.uuid[:8]}=")
    assert "Secure" not in cookie
    answer = stranger.ask("GET", "/v1/status")
    assert answer.status_code == 401, "a cookie opens nothing but the page"


def test_over_tls_the_cookie_goes_nowhere_else(make_page_app):
    listen = {"tls_cert": Path("/c"), "tls_key": Path("/k"), "allow": EVERYBODY}
    person = Person(make_page_app(listen=listen), peer="10.0.0.7", scheme="https")
    cookie = person.login("operators-secret").headers["Set-Cookie"]
    assert cookie.startswith("__Host-tsferry-")
    for part in ("Secure", "HttpOnly", "SameSite=Strict", "Path=/;"):
        assert part in f"{cookie};"
    person.see("/ui/")


@pytest.mark.parametrize("role", ["sender", "worker", "writer"])
def test_tokens_of_programs_show_no_pages(stranger, node, role):
    token = make_token(node.engine, role, sender=A if role == "sender" else None).token
    answer = stranger.login(token)
    assert answer.status_code == 403
    assert f"A {role} token shows no pages" in Read(answer.get_data(as_text=True)).text
    assert stranger.ask("GET", "/ui/").status_code == 303


def test_wrong_tokens_are_taken_a_few_times_only(app, stranger, caplog, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(site_of(app).page.limits, "_clock", lambda: now[0])
    with caplog.at_level(logging.WARNING, "audit"):
        codes = [stranger.login(f"wrong {n}").status_code for n in range(14)]
    assert codes == [401] * 10 + [429] * 4
    assert [each.message for each in caplog.records] == ["refused"], "a line of each address"
    answer = stranger.login("operators-secret")
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "300")
    app_peer = Person(app, peer="127.0.0.2")
    assert app_peer.login("operators-secret").status_code == 303
    now[0] += 301
    assert stranger.login("operators-secret").status_code == 303


def test_many_addresses_fill_no_log_and_keep_nobody_out(app, caplog, monkeypatch):
    limits = site_of(app).page.limits
    for n in range(198):
        limits.wrong(f"127.1.0.{n}")
    with caplog.at_level(logging.WARNING, "audit"):
        codes = {Person(app, peer=f"127.0.1.{n}").login("wrong").status_code for n in range(5)}
    assert codes == {401}
    assert len(caplog.records) == 2
    assert Person(app).login("operators-secret").status_code == 303
    monkeypatch.setattr("receiver.web.ui.login_limits._KEPT", 50)
    limits.wrong("127.0.0.9")
    assert len(limits._wrong) == 50
    assert sum(limits._of.values()) == 50


def test_a_revoked_token_ends_its_sessions(app, stranger, node):
    made = make_token(node.engine, "operator")
    stranger.login(made.token)
    stranger.see("/ui/")
    revoke_token(node.engine, made.id)
    answer = stranger.ask("GET", "/ui/files")
    assert answer.headers["Location"] == link("login", next="/ui/files", why="over")
    assert len(site_of(app).page.sessions) == 0
    read = stranger.see(answer.headers["Location"])
    assert "The session is over" in read.text


def test_a_token_that_expires_ends_its_sessions(stranger, node, clock):
    made = make_token(node.engine, "operator", expires=clock.now + 60)
    stranger.login(made.token)
    stranger.see("/ui/")
    clock.now += 61
    assert stranger.ask("GET", "/ui/").status_code == 303
    assert stranger.login(made.token).status_code == 401


def test_a_form_of_a_session_that_is_over_does_nothing(stranger, node, edges):
    made = make_token(node.engine, "operator")
    stranger.login(made.token)
    read = stranger.see("/ui/do/release?device=root.sg.d1")
    revoke_token(node.engine, made.id)
    answer = stranger.send("/ui/do/release", read.fields())
    assert answer.headers["Location"] == link("login", why="over")
    with node.engine.reading() as state:
        assert "root.sg.d1" in state.owners


def test_logging_out_ends_the_session(app, operator):
    read = operator.see("/ui/")
    cookie = operator.client.get_cookie(site_of(app).page.cookie, path="/ui/").value
    answer = operator.send("/ui/logout", {"csrf": read.fields()["csrf"]})
    assert answer.headers["Location"] == "/ui/login"
    operator.client.set_cookie(site_of(app).page.cookie, cookie, path="/ui/")
    assert operator.ask("GET", "/ui/").status_code == 303


def test_a_second_login_ends_the_first(app, operator):
    operator.login("operators-secret")
    assert len(site_of(app).page.sessions) == 1


@pytest.mark.parametrize("origin", [None, "", "http://evil", "null", "http://[", "http://a]b"])
def test_a_form_of_another_origin_is_refused(operator, stranger, node, edges, origin):
    headers = {"Origin": origin}
    read = operator.see("/ui/do/release?device=root.sg.d1")
    assert operator.send("/ui/do/release", read.fields(), **headers).status_code == 403
    assert stranger.send("/ui/login", {"token": "operators-secret"}, **headers).status_code == 403
    with node.engine.reading() as state:
        assert "root.sg.d1" in state.owners


@pytest.mark.parametrize("word", ["", "wrong", "é"])
def test_a_form_without_the_word_of_the_session_is_refused(operator, node, edges, word):
    read = operator.see("/ui/do/release?device=root.sg.d1")
    answer = operator.send("/ui/do/release", {**read.fields(), "csrf": word})
    assert answer.status_code == 403
    assert "not of this session" in Read(answer.get_data(as_text=True)).text
    with node.engine.reading() as state:
        assert "root.sg.d1" in state.owners


def test_over_plain_http_the_page_is_for_its_own_machine(make_page_app):
    app = make_page_app(listen={"insecure": True, "allow": EVERYBODY})
    elsewhere = Person(app, peer="10.0.0.7")
    assert "over plain HTTP" in elsewhere.see("/ui/login", 403).text
    assert elsewhere.login("operators-secret").status_code == 403
    assert Person(app).login("operators-secret").status_code == 303


def test_it_is_for_others_if_somebody_says_so(make_page_app):
    app = make_page_app(listen={"insecure": True, "allow": EVERYBODY}, insecure=True)
    elsewhere = Person(app, peer="10.0.0.7")
    assert elsewhere.login("operators-secret").status_code == 303
    elsewhere.see("/ui/")


def test_an_address_that_is_not_on_the_list_has_no_page(make_page_app):
    answer = Person(make_page_app(insecure=True), peer="10.0.0.7").ask("GET", "/ui/login")
    assert answer.status_code == 403


@pytest.mark.parametrize("path", ["/", "/ui"])
def test_who_types_less_gets_to_the_page_too(stranger, path):
    assert stranger.ask("GET", path).headers["Location"] == "/ui/"


def test_the_page_can_be_switched_off(make_page_app):
    person = Person(make_page_app(enabled=False))
    for path in ("/ui", "/ui/", "/ui/login", "/ui/static/page.css", f"/ui/edge/{A}"):
        assert "there is no" in person.see(path, 404).text
    assert person.ask("GET", "/").status_code == 404
    assert person.login("operators-secret").status_code == 404


def test_static_files_are_kept_by_browsers_and_change_with_their_address(stranger):
    read = stranger.see("/ui/login")
    for each in read.all("link"):
        answer = stranger.ask("GET", each["href"])
        assert answer.status_code == 200
        assert "immutable" in answer.headers["Cache-Control"]
    old = stranger.ask("GET", "/ui/static/page.css?v=old")
    assert old.headers["Cache-Control"] == "no-store"
    for name in ("nothing.css", "..%2Fpage_call.py", "%2e%2e"):
        assert stranger.ask("GET", f"/ui/static/{name}").status_code in (404, 308)


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/ui/wp-login.php", 404),
        ("GET", "/ui/../etc/passwd", 404),
        ("GET", "/ui/edge/" + "x" * 4000, 303),
        ("DELETE", "/ui/files", 405),
        ("PUT", "/ui/", 405),
        ("GET", "/ui/logout", 405),
        ("GET", "/ui/files?path=" + "x" * 5000, 414),
        ("GET", "/ui/files?path=a&path=b", 303),
        ("POST", "/ui/login", 403),
        ("GET", "/ui/login?next=a&next=b", 400),
    ],
)
def test_what_a_scanner_asks_is_answered_and_not_logged(stranger, caplog, method, path, code):
    with caplog.at_level(logging.INFO):
        answer = stranger.ask(method, path)
    assert answer.status_code == code
    assert [each for each in caplog.records if each.name != "audit" or code != 403] == []
    if code == 405:
        assert "GET" in answer.headers["Allow"] or path == "/ui/logout"
        read = Read(answer.get_data(as_text=True))
        assert "405" in read.text
    assert "WWW-Authenticate" not in answer.headers


@pytest.mark.parametrize(
    ("path", "code", "words"),
    [
        ("/ui/edge/nobody", 404, "no sender 'nobody' has been here"),
        ("/ui/files?at=yesterday", 400, "is no time"),
        ("/ui/files?state=odd", 400, "expected one of visible"),
        ("/ui/files?begin=odd", 400, "is no time"),
        ("/ui/files?edge=nobody", 404, "or the label 'nobody'"),
        ("/ui/files?path=a&path=b", 400, "path: comes 2 times"),
        ("/ui/files?count=7", 400, "expected one of 50"),
        ("/ui/?sort=odd", 400, "expected one of label"),
        ("/ui/?from=-1", 400, "from: expected a whole number"),
        ("/ui/?q=" + "x" * 1600, 400, "longer than"),
        ("/ui/groups/nothing", 404, "there is no table nothing"),
        ("/ui/tasks?state=odd", 400, "state: expected one of"),
        ("/ui/do/nothing", 404, "there is no such action"),
        ("/ui/do/try-again?task=x", 404, "is the id of no background task"),
        ("/ui/nothing", 404, "there is no such page here"),
    ],
)
def test_errors_are_pages_with_the_words_of_the_commands(operator, path, code, words):
    assert words in operator.see(path, code).text


def test_what_nobody_foresaw_has_a_number_and_no_details(operator, monkeypatch):
    monkeypatch.setattr("receiver.web.ui.screens.history_page.list_commits", lambda *_, **__: 1 / 0)
    read = operator.see("/ui/history", 500)
    assert "ZeroDivision" not in read.text
    assert "receiver's log has it as" in read.text


def test_a_time_before_the_history_is_gone(operator, node, edges):
    with node.engine.reading():
        node.engine.window.move(node.engine.newest_commit)
    assert "before the kept history" in operator.see("/ui/files?at=5", 410).text


# -- sessions by themselves ------------------------------------------------------------------------


def sessions(life=1000.0, idle=100.0):
    now = [0.0]
    return PageSessions(life, idle, lambda: now[0]), now


def test_a_session_ends_when_it_is_idle():
    made, now = sessions()
    secret = made.begin("digest", "id")
    now[0] = 99
    assert made.find(secret) is not None
    now[0] = 198
    assert made.find(secret) is not None, "it was used in between"
    now[0] = 298
    assert made.find(secret) is None
    assert len(made) == 0


def test_a_session_ends_in_the_end():
    made, now = sessions()
    secret = made.begin("digest", "id")
    for now[0] in range(0, 1000, 50):
        assert made.find(secret) is not None
    now[0] = 1000
    assert made.find(secret) is None


def test_secrets_are_not_kept():
    made, _ = sessions()
    secret = made.begin("digest", "id")
    assert secret not in str(vars(made))
    assert made.find(secret + "x") is None


def test_there_are_so_many_sessions_at_most():
    made, now = sessions(idle=5000.0, life=9000.0)
    secrets = []
    for now[0] in range(1005):
        secrets.append(made.begin("digest", "id"))
    assert len(made) == 1000
    assert made.find(secrets[0]) is None
    assert made.find(secrets[-1]) is not None


def test_a_message_is_said_once_and_there_are_few():
    made, _ = sessions()
    session = made.find(made.begin("digest", "id"))
    for number in range(9):
        session.say(str(number))
    assert session.said() == ["4", "5", "6", "7", "8"]
    assert session.said() == []
