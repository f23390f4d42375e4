"""Client certificates in the place of tokens: whom they let in, and what ends that."""

import msgspec
import pytest

from common.errors import ForbiddenError, UnauthorizedError
from receiver.config import AuthConfig, ListenConfig
from receiver.metadata.engine import Engine
from receiver.operator.edges.tokens import make_token, revoke_token
from receiver.web.access import Access
from receiver.web.app import EVERYTHING
from receiver.web.routes import Role
from receiver.web.server import PeerCertificate, RequestHead
from tests.support.node_world import A, B, Clock, World

ROUTE = {route.name: route for route in EVERYTHING}
CHECK, CATALOGUE, STATUS, HEALTH = (
    ROUTE[name] for name in ("check", "catalogue", "status", "healthz")
)
EDGE = "edge7.plant.example"


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def engine(tmp_path, clock):
    with Engine.open(tmp_path / "schema", clock=clock) as engine:
        yield engine


@pytest.fixture
def make_access(tmp_path, engine, clock):
    def make(auth="optional"):
        listen = ListenConfig(
            tls_cert=tmp_path, tls_key=tmp_path, client_ca=tmp_path, client_auth=auth
        )
        config = msgspec.structs.replace(
            World(tmp_path).config, listen=listen, auth=AuthConfig(require="auto")
        )
        return Access(config, engine, clock=clock)

    return make


def head(*names, until=1e12, token=None):
    given = {"HOST": "127.0.0.1"}
    if token is not None:
        given["AUTHORIZATION"] = f"Bearer {token}"
    shown = PeerCertificate(names, until, "f" * 64) if names != ("none",) else None
    return RequestHead("127.0.0.1", "127.0.0.1", "POST", "/x", given, shown)


def test_a_bound_certificate_can_what_a_token_could(make_access, engine, clock):
    made = make_token(
        engine,
        "sender",
        sender=A,
        scope=["root.a.**"],
        allow_deletes=False,
        lasts=100,
        certificate="Edge7.PLANT.example",
    )
    access = make_access()
    who = access.admit(head("other.example", EDGE), CHECK)
    assert (who.role, who.sender, who.token_id) == ("sender", A, made.id)
    assert (who.scope, who.may_overwrite) == (("root.a.**",), False)
    with pytest.raises(ForbiddenError, match="a sender token may not do this"):
        access.admit(head(EDGE), STATUS)
    with pytest.raises(ForbiddenError, match="not for sender"):
        who.must_send_for(B)
    clock.now += 100
    with pytest.raises(UnauthorizedError, match="expired"):
        access.admit(head(EDGE), CHECK)


@pytest.mark.parametrize(
    "names",
    [
        (),
        ("*.plant.example",),
        ("plant.example",),
        ("edge7.plant.example.org",),
        ("x.edge7.plant.example",),
        ("spiffe://plant/EDGE7",),
        (f"dns:{EDGE}",),
    ],
)
def test_a_certificate_that_is_not_bound_lets_nobody_in(make_access, engine, names):
    """Not by a wildcard, a part of a name, other letters of a URI; and not with a token either."""
    access = make_access()
    with pytest.raises(UnauthorizedError, match="certificate"):  # where none else is needed
        access.admit(head(*names), CHECK)
    make_token(engine, "sender", sender=A, certificate=EDGE)
    make_token(engine, "sender", sender=A, certificate="spiffe://plant/edge7")
    token = make_token(engine, "sender", sender=A).token
    for given in (None, token):
        with pytest.raises(UnauthorizedError, match="certificate"):
            access.admit(head(*names, token=given), CHECK)


def test_a_name_is_no_token(make_access, engine):
    made = make_token(engine, "operator", certificate=EDGE)
    assert made.token == ""
    with engine.reading() as state:
        stored = state.tokens[made.id].hash
    for guess in (EDGE, f"dns:{EDGE}", made.id, stored, f"tsf_{made.id}_"):
        with pytest.raises(UnauthorizedError, match="not known"):
            make_access().admit(head("none", token=guess), STATUS)


def test_a_certificate_by_two_bound_names_is_refused(make_access, engine):
    make_token(engine, "sender", sender=A, certificate=EDGE)
    make_token(engine, "operator", certificate="spiffe://plant/edge7")
    with pytest.raises(ForbiddenError, match="several names"):
        make_access().admit(head(EDGE, "spiffe://plant/edge7"), CHECK)


def test_a_binding_that_is_taken_back_ends_access_with_the_next_request(make_access, engine):
    made = make_token(engine, "sender", sender=A, certificate=EDGE)
    access = make_access()
    access.admit(head(EDGE), CHECK)
    revoke_token(engine, made.id)
    with pytest.raises(UnauthorizedError, match="no name of the certificate is bound"):
        access.admit(head(EDGE), CHECK)
    again = make_token(engine, "sender", sender=B, certificate=EDGE)
    assert access.admit(head(EDGE), CHECK).token_id == again.id


def test_a_certificate_that_ends_while_its_connection_is_open_ends_access(
    make_access, engine, clock
):
    make_token(engine, "sender", sender=A, certificate=EDGE)
    access, until = make_access(), clock() + 10
    access.admit(head(EDGE, until=until), CHECK)
    clock.now += 10
    with pytest.raises(UnauthorizedError, match="has ended"):
        access.admit(head(EDGE, until=until), CHECK)


@pytest.mark.parametrize(
    "other",
    [
        {"role": "sender", "sender": B},
        {"role": "sender", "sender": A, "scope": ["root.**"]},
        {"role": "sender", "sender": A, "allow_deletes": False},
        {"role": "operator"},
        {"role": "reader"},
    ],
)
def test_a_token_with_a_certificate_has_to_be_for_the_same(make_access, engine, other):
    make_token(engine, "sender", sender=A, certificate=EDGE)
    token = make_token(engine, **other).token
    with pytest.raises(ForbiddenError, match="are not for the same"):
        make_access().admit(head(EDGE, token=token), CHECK)


def test_a_token_and_a_certificate_for_the_same_do_while_one_takes_the_place_of_the_other(
    make_access, engine
):
    bound = make_token(engine, "sender", sender=A, scope=["root.a.**"], certificate=EDGE)
    token = make_token(engine, "sender", sender=A, scope=["root.a.**"])
    access = make_access()
    assert access.admit(head(EDGE, token=token.token), CHECK).token_id == token.id
    revoke_token(engine, bound.id)
    with pytest.raises(UnauthorizedError):
        access.admit(head(EDGE, token=token.token), CHECK)


def test_where_certificates_are_required_only_the_commands_of_this_machine_do_without(
    make_access, engine
):
    access = make_access("required")
    access.accept_operator("of the day")
    token = make_token(engine, "operator").token
    assert access.admit(head("none", token="of the day"), STATUS).is_local
    assert access.admit(head(token="of the day"), STATUS).is_local
    access.admit(head("none"), HEALTH)
    page = next(each for each in EVERYTHING if each.role is Role.PAGE)
    for route, given in ((STATUS, token), (CHECK, None), (page, None)):
        with pytest.raises(UnauthorizedError, match="client_auth"):
            access.admit(head("none", token=given), route)
