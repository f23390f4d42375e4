from __future__ import annotations

import pytest

from common.config import Timetable
from common.network.bandwidth import Bandwidth
from sender.send.calls import Client
from sender.send.connection.body_compression import BodyCompression
from sender.send.connection.transport import Endpoint
from tests.support.scripted_receiver import ScriptedReceiver


@pytest.fixture
def receiver():
    with ScriptedReceiver() as running:
        yield running


@pytest.fixture
def client(receiver):
    made = make_client(receiver.url)
    yield made
    made.close()


def make_client(url: str, *, compression: str = "off", **settings: object) -> Client:
    settings = {"connect_timeout": 2.0, "read_timeout": 2.0, "sender": "a" * 32} | settings
    unlimited = Bandwidth(Timetable(), sleep=lambda _: False)
    return Client(
        Endpoint(url, **settings),
        bandwidth=unlimited,
        compression=BodyCompression(compression, unlimited),
    )
