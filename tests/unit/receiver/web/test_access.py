"""Who is let in, judged by the real address, the token, and what browsers send."""

import msgspec
import pytest

from common.config import AllowList
from common.errors import ForbiddenError, UnauthorizedError
from receiver.config import AuthConfig, ListenConfig
from receiver.metadata.engine import Engine
from receiver.operator.edges.tokens import make_token, require_tokens, revoke_token
from receiver.web.access import Access
from receiver.web.app import ROUTES
from receiver.web.server import RequestHead
from tests.support.node_world import A, B, Clock, World

ROUTE = {route.name: route for route in ROUTES}
CHECK, CATALOGUE, STATUS, HEALTH = (
    ROUTE[name] for name in ("check", "catalogue", "status", "healthz")
)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def engine(tmp_path, clock):
    with Engine.open(tmp_path / "schema", clock=clock) as engine:
        yield engine


@pytest.fixture
def make_access(tmp_path, engine, clock):
    def make(*, allow=("127.0.0.0/8", "::1/128"), require="auto", **listen):
        config = msgspec.structs.replace(
            World(tmp_path).config,
            listen=ListenConfig(allow=AllowList.parse(allow), **listen),
            auth=AuthConfig(require=require),
        )
        return Access(config, engine, clock=clock)

    return make


def head(peer="127.0.0.1", token=None, local="", method="POST", **headers):
    given = {"HOST": "127.0.0.1:8765"}
    if token is not None:
        given["AUTHORIZATION"] = f"Bearer {token}"
    given |= {key.upper(): value for key, value in headers.items() if value is not None}
    return RequestHead(peer, local, method, "/x", given)


# -- addresses -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "inside", "outside"),
    [
        (
            "10.1.0.0/16",
            ["10.1.0.0", "10.1.255.255", "::ffff:10.1.0.0"],
            ["10.0.255.255", "10.2.0.0"],
        ),
        ("10.1.2.3", ["10.1.2.3", "::ffff:10.1.2.3"], ["10.1.2.2", "10.1.2.4", "::10.1.2.3"]),
        (
            "fd00:1::/32",
            ["fd00:1::", "fd00:1:ffff:ffff:ffff:ffff:ffff:ffff"],
            ["fd00:2::", "fd00::"],
        ),
        ("0.0.0.0/0", ["1.2.3.4", "::ffff:1.2.3.4"], ["::1", "fd00::1"]),
        ("::/0", ["fd00::1"], ["1.2.3.4", "::ffff:1.2.3.4"]),
    ],
)
def test_the_edges_of_a_cidr(make_access, entry, inside, outside):
    access = make_access(allow=(entry,))
    for peer in inside:
        access.admit(head(peer), HEALTH)
    for peer in [*outside, "", "no address", "127.0.0.1; DROP"]:
        with pytest.raises(ForbiddenError):
            access.admit(head(peer), HEALTH)


def test_a_mapped_loopback_address_is_loopback(make_access):
    assert make_access().admit(head("::ffff:127.0.0.1"), CHECK).role == "sender"


@pytest.mark.parametrize("name", ["X_FORWARDED_FOR", "FORWARDED", "X_REAL_IP", "CLIENT_IP"])
def test_an_address_in_a_header_counts_for_nothing(make_access, name):
    with pytest.raises(ForbiddenError):
        make_access().admit(head("10.9.9.9", **{name: "127.0.0.1"}), HEALTH)
    make_access().admit(head("127.0.0.1", **{name: "10.9.9.9"}), HEALTH)


def test_an_unknown_path_is_judged_by_the_address_too(make_access):
    with pytest.raises(ForbiddenError):
        make_access().admit(head("10.9.9.9"), None)


def test_operators_of_this_machine_need_not_be_on_the_list(make_access):
    access = make_access(allow=("10.0.0.0/8",))
    access.accept_operator("secret")
    assert access.admit(head("127.0.0.1", "secret"), STATUS).role == "operator"
    assert access.admit(head("192.0.2.1", "secret", local="192.0.2.1"), STATUS).role == "operator"
    for peer in ("192.0.2.2", "192.0.2.1"):
        with pytest.raises(ForbiddenError):
            access.admit(head(peer, "secret", local="192.0.2.9"), STATUS)
    with pytest.raises(ForbiddenError):
        access.admit(head("127.0.0.1"), CHECK)


# -- tokens ----------------------------------------------------------------------------------------


def test_a_sender_token_speaks_for_its_sender_only(make_access, engine):
    made = make_token(engine, "sender", sender=A, scope=["root.a.**"])
    access = make_access()
    who = access.admit(head(token=made.token, tsferry_sender=A), CHECK)
    assert (who.role, who.sender, who.scope, who.token_id) == ("sender", A, ("root.a.**",), made.id)
    assert access.admit(head(token=made.token), CHECK).sender == A
    with pytest.raises(ForbiddenError):
        access.admit(head(token=made.token, tsferry_sender=B), CHECK)


@pytest.mark.parametrize(
    "authorization",
    ["", "Bearer", "Bearer ", "Basic dGVzdA==", "tsf_x", "Bearer \xff\xfe", "Bearer a b"],
)
def test_what_is_no_token_is_refused(make_access, authorization):
    with pytest.raises(UnauthorizedError):
        make_access().admit(head(authorization=authorization), CHECK)


def test_a_wrong_token_is_refused_even_where_none_is_needed(make_access):
    access = make_access()
    assert access.admit(head(), CHECK).token_id is None
    with pytest.raises(UnauthorizedError):
        access.admit(head(token="tsf_wrong"), CHECK)


def test_a_revoked_token_stops_working_at_once(make_access, engine):
    from receiver.metadata.model import records

    made = make_token(engine, "sender", sender=A)
    access = make_access()
    access.admit(head(token=made.token), CHECK)
    engine.commit([records.TokenRevoke(made.id)])
    with pytest.raises(UnauthorizedError, match="revoked"):
        access.admit(head(token=made.token), CHECK)


def test_an_expired_token_is_refused(make_access, engine, clock):
    made = make_token(engine, "reader", expires=clock() + 10)
    access = make_access()
    access.admit(head(token=made.token), CATALOGUE)
    clock.now += 10
    with pytest.raises(UnauthorizedError, match="expired"):
        access.admit(head(token=made.token), CATALOGUE)


@pytest.mark.parametrize(
    ("role", "may"),
    [
        ("sender", {"check"}),
        ("reader", {"catalogue"}),
        ("operator", {"catalogue", "status"}),
    ],
)
def test_each_role_may_do_what_is_its_own(make_access, engine, role, may):
    made = make_token(engine, role, sender=A if role == "sender" else None)
    access = make_access()
    for route in (CHECK, CATALOGUE, STATUS):
        if route.name in may:
            assert access.admit(head(token=made.token), route).role == role
        else:
            with pytest.raises(ForbiddenError):
                access.admit(head(token=made.token), route)


# -- without tokens --------------------------------------------------------------------------------


def test_without_a_sender_token_loopback_may_send(make_access, engine):
    access = make_access()
    assert access.admit(head(), CHECK).sender is None
    assert access.admit(head(tsferry_sender=A), CHECK).sender == A
    make_token(engine, "sender", sender=A)
    with pytest.raises(UnauthorizedError, match="token create"):
        access.admit(head(), CHECK)


@pytest.mark.parametrize("checkpoint", [True, False])
def test_the_first_token_closes_the_door_for_good(tmp_path, make_access, engine, checkpoint):
    revoke_token(engine, make_token(engine, "sender", sender=A).id)
    with pytest.raises(UnauthorizedError):
        make_access().admit(head(), CHECK)
    if checkpoint:
        engine.checkpoint()
    engine.close()
    with Engine.open(tmp_path / "schema") as again:
        access = Access(World(tmp_path).config, again)
        with pytest.raises(UnauthorizedError):
            access.admit(head(), CHECK)
        assert access.admit(head(), CATALOGUE).role == "reader"


def test_an_engine_in_the_place_of_a_lost_one_lets_nobody_in_by_itself(make_access, engine):
    require_tokens(engine)
    for call in (CHECK, CATALOGUE):
        with pytest.raises(UnauthorizedError):
            make_access().admit(head(), call)


def test_an_expired_sender_token_does_not_open_the_door_again(make_access, engine, clock):
    make_token(engine, "sender", sender=A, expires=clock() + 1)
    clock.now += 5
    with pytest.raises(UnauthorizedError):
        make_access().admit(head(), CHECK)


def test_with_require_always_nobody_sends_without_a_token(make_access):
    with pytest.raises(UnauthorizedError):
        make_access(require="always").admit(head(), CHECK)


def test_operators_always_need_a_token(make_access):
    for insecure in (False, True):
        with pytest.raises(UnauthorizedError):
            make_access(insecure=insecure).admit(head(), STATUS)


def test_off_loopback_a_token_is_needed_unless_insecure(make_access):
    everywhere = ("0.0.0.0/0", "::/0")
    with pytest.raises(UnauthorizedError):
        make_access(allow=everywhere).admit(head("10.1.1.1"), CHECK)
    assert make_access(allow=everywhere, insecure=True).admit(head("10.1.1.1"), CHECK)


# -- browsers --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "https://127.0.0.1:1", "http://127.0.0.1", "", "x", "http://["],
)
def test_a_post_from_a_foreign_page_is_refused(make_access, origin):
    with pytest.raises(ForbiddenError, match="origin"):
        make_access().admit(head(origin=origin), CHECK)


def test_a_post_from_our_own_page_is_let_in(make_access):
    make_access().admit(head(origin="http://127.0.0.1:8765"), CHECK)
    with pytest.raises(ForbiddenError):
        make_access().admit(head(sec_fetch_site="cross-site"), CHECK)


@pytest.mark.parametrize("host", ["evil.example:8765", "evil.example", "localhost.evil.example"])
def test_a_name_that_was_made_to_resolve_to_loopback_gets_in_nowhere_without_a_token(
    make_access, engine, host
):
    access = make_access()
    with pytest.raises(UnauthorizedError):
        access.admit(head(host=host, origin=f"http://{host}"), CHECK)
    made = make_token(engine, "sender", sender=A)
    access.admit(head(host=host, token=made.token), CHECK)


@pytest.mark.parametrize("host", ["localhost:8765", "127.0.0.1:8765", "[::1]:8765", "10.0.0.1"])
def test_addresses_and_localhost_are_our_own_names(make_access, host):
    make_access().admit(head(host=host), CHECK)


def test_an_unknown_host_is_refused_where_hosts_are_configured(make_access):
    access = make_access(hosts=("centre.example.org", "10.0.0.1:8765"))
    for host in ("centre.example.org", "CENTRE.example.org:8765", "10.0.0.1:8765"):
        access.admit(head(host=host), HEALTH)
    for host in ("evil.example", "10.0.0.1:9", "", None, "centre.example.org.evil"):
        with pytest.raises(ForbiddenError, match="Host"):
            access.admit(head(host=host or ""), HEALTH)
