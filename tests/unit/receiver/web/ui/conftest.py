"""A receiver with the web page, and people in front of it."""

from __future__ import annotations

import msgspec
import pytest

from common import wire
from receiver.metadata.model import records
from receiver.operator.edges.tokens import make_token
from receiver.web.app import close, create_app, site_of
from tests.support.node_world import A, B, Edge, path_of, tsfile
from tests.support.page_reader import HOSTILE, Person

BAD_NODE = "`<img src=x onerror=alert(2)>`"
"""A node of a device that is no good either."""


@pytest.fixture
def make_page_app(world, clock):
    made = []

    def make(*, listen=None, **page):
        config = world.config
        changed = msgspec.structs.replace(
            config,
            page=msgspec.structs.replace(config.page, **page),
            listen=msgspec.structs.replace(config.listen, **(listen or {})),
        )
        app = create_app(changed, clock=clock)
        site_of(app).access.accept_operator("operators-secret")
        made.append(app)
        return app

    yield make
    for app in made:
        close(app)


@pytest.fixture
def app(make_page_app):
    return make_page_app()


@pytest.fixture
def node(app):
    return site_of(app).node


@pytest.fixture
def operator(app):
    person = Person(app)
    assert person.login("operators-secret").status_code == 303
    return person


@pytest.fixture
def reader(app, node):
    person = Person(app)
    token = make_token(node.engine, "reader").token
    assert person.login(token).status_code == 303
    return person


@pytest.fixture
def stranger(app):
    return Person(app)


def call_it(node, uuid, label):
    """Let an edge be called so."""
    with node.engine.reading() as state:
        directory = state.senders[uuid].directory
    node.engine.commit([records.SenderSeen(uuid, label, directory)])


def says(node, uuid, **more):
    """Let an edge give a sign of life."""
    beat = wire.Heartbeat(**{"version": "9.9", **more})
    node.checks.heartbeat(Edge(node, uuid=uuid).who, uuid, beat)


@pytest.fixture
def edges(node):
    """Two edges: A with two files, and B, whose name is no good."""
    a, b = Edge(node, uuid=A), Edge(node, uuid=B)
    a.round({path_of(1): tsfile("root.sg.d1"), path_of(2): tsfile("root.sg.d2", first=100)})
    b.round({path_of(3, sg="root.other"): tsfile(f"root.other.{BAD_NODE}")})
    call_it(node, A, "plant 7")
    call_it(node, B, HOSTILE)
    return a, b
