from __future__ import annotations

import dataclasses
import time

import msgspec

from common.wire import CheckRequest, Heartbeat
from receiver.metadata.model import records
from receiver.operator.edges.ending import SOON
from receiver.operator.edges.fleet import edge_row
from receiver.operator.edges.tokens import make_token
from receiver.operator.status import running_status
from receiver.operator.views.status_views import StatusView
from tests.support.authority import Authority
from tests.support.node_world import A, Edge, World, path_of, sender, tsfile
from tests.support.web import make_certificate

DAY = 86400.0


def test_tokens_that_end_within_thirty_days_are_a_concern(world: World) -> None:
    with world.node() as node:
        make_token(
            node.engine, records.SENDER, sender=A, note="plant 7", expires=world.clock() + SOON
        )
        make_token(node.engine, records.READER, note="for ever")
        assert running_status(node.operator, None).tokens_ending == ()
        world.clock.now += 1.0  # type: ignore[attr-defined]
        status = running_status(node.operator, None)
        assert [(each.note, each.sender) for each in status.tokens_ending] == [("plant 7", A)]
        assert any("a token ends within 30 days" in each for each in status.concerns)
        world.clock.now += SOON  # type: ignore[attr-defined]
        status = running_status(node.operator, None)
        assert len(status.tokens_ending) == 1
        assert not status.concerns, "it opens nothing any more"


def test_a_client_certificate_of_an_edge_that_ends_soon_is_told_everywhere(world: World) -> None:
    with world.node() as node:
        Edge(node, uuid=A).round({path_of(1): tsfile("root.sg.d1")})
        until = world.clock() + SOON

        def said(**more: float) -> tuple[StatusView, tuple[str, ...]]:
            node.checks.heartbeat(sender(A), A, Heartbeat(version="1", **more))
            row = edge_row(node.operator, A)
            assert row is not None
            return running_status(node.operator, None), row.troubles

        for more in ({}, {"client_certificate_until": until}):  # of a version before, and in time
            status, troubles = said(**more)
            assert (status.edge_certificates_ending, troubles) == ((), ())
        world.clock.now += 1.0  # type: ignore[attr-defined]
        status, troubles = said(client_certificate_until=until)
        (ending,) = status.edge_certificates_ending
        assert (ending.sender, ending.expires) == (A, until)
        assert any("the client certificate of edge" in each for each in status.concerns)
        assert [each.startswith("its client certificate ends on") for each in troubles] == [True]
        world.clock.now += SOON  # type: ignore[attr-defined]
        status, troubles = said(client_certificate_until=until)
        assert "its client certificate has ended" in " ".join(troubles)
        for nonsense in (1e300, -1e300):
            said(client_certificate_until=nonsense)


def test_a_certificate_that_ends_soon_is_a_concern(world: World, tmp_path) -> None:
    cert, key = make_certificate(tmp_path, "127.0.0.1")  # of two days
    listen = msgspec.structs.replace(world.config.listen, tls_cert=cert, tls_key=key)
    with world.node() as node:
        assert running_status(node.operator, None).certificate_until is None
        config = msgspec.structs.replace(world.config, listen=listen)
        there = dataclasses.replace(node.operator, config=config, clock=lambda: time.time())
        status = running_status(there, None)
        assert 0 < status.certificate_until - time.time() <= 2 * DAY
        assert any("the certificate ends on" in each for each in status.concerns)
        ended = dataclasses.replace(there, clock=lambda: time.time() + 3 * DAY)
        assert any("has ended" in each for each in running_status(ended, None).concerns)


def test_what_client_certificates_stand_on_is_a_concern_before_it_ends(
    world: World, tmp_path
) -> None:
    authority = Authority(tmp_path / "plant")  # both of two days
    listen = msgspec.structs.replace(
        world.config.listen, client_ca=authority.ca, client_crl=authority.crl()
    )
    config = msgspec.structs.replace(world.config, listen=listen)
    with world.node() as node:
        for later, said in (
            (0.0, ["the certificate of listen.client_ca ends on"]),
            (1.5, ["listen.client_ca ends on", "the list of listen.client_crl ends on"]),
            (2.5, ["listen.client_ca has ended on", "listen.client_crl has ended on"]),
        ):
            there = dataclasses.replace(
                node.operator, config=config, clock=lambda later=later: time.time() + later * DAY
            )
            concerns = running_status(there, None).concerns
            assert len([each for each in concerns if "listen.client" in each]) == len(said)
            assert all(any(one in each for each in concerns) for one in said)


def test_a_sender_is_told_when_its_token_and_the_certificate_end(world: World) -> None:
    with world.node() as node:
        until = world.clock() + 5 * DAY
        made = make_token(node.engine, records.SENDER, sender=A, expires=until)
        answer = node.checks.check(
            sender(token=made.id),
            CheckRequest(
                protocol=1,
                version="0",
                sender=A,
                partition_interval_ms=node.config.partition_interval_ms,
            ),
        )
        assert (answer.token_until, answer.certificate_until) == (until, None)
