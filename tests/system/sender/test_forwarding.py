"""A centre that forwards to a higher centre: A -> B -> C."""

from __future__ import annotations

import hashlib

import msgspec
import pytest

from common.config import Secret
from sender.config import ReceiverEntry
from tests.support.centre import centre as serving
from tests.support.edge import Edge


@pytest.fixture
def chain(tmp_path):
    """Edge A, centre B with a sender on it, centre C."""
    with serving(tmp_path / "b") as b, serving(tmp_path / "c") as c:
        edge = Edge(tmp_path / "a", b.start(), propagate_deletes="all")
        upper = c.start()
        token = b.call("token", "create", "--role", "reader")["token"]
        sender = b.call("token", "create", "--sender", edge.uuid)["token"]
        edge.with_settings(
            receivers=(msgspec.structs.replace(edge.config.receivers[0], token=Secret(sender)),)
        )
        forwarder = Edge(tmp_path / "b-sender", upper, propagate_deletes="all")
        forwarder.with_settings(
            receivers=(
                ReceiverEntry(
                    name="upper",
                    url=upper,
                    source="receiver",
                    source_url=f"http://127.0.0.1:{b.port}",
                    source_token=Secret(token),
                ),
            )
        )
        yield edge, b, forwarder, c


def contents(centre, uuid: str) -> list[str]:
    return sorted(centre.loaded(uuid).values())


def test_what_reaches_the_centre_reaches_the_higher_one_once(chain):
    edge, _, forwarder, upper = chain
    for number in range(5):
        edge.write(number)
    edge.write(9, size=300_000)
    assert edge.round().exit_code == 0
    report = forwarder.round()
    assert (report.sent, report.exit_code) == (6, 0), report.as_json()
    assert contents(upper, forwarder.uuid) == sorted(edge.files.values())
    assert forwarder.round().quiet


def test_replacements_and_deletions_go_all_the_way(chain):
    edge, lower, forwarder, upper = chain
    for number in range(4):
        edge.write(number)
    edge.round()
    forwarder.round()
    edge.remove(edge.path(0))
    edge.write(1, points=40)
    edge.write(7)
    assert edge.round().exit_code == 0
    report = forwarder.round()
    assert report.exit_code == 0, report.as_json()
    assert contents(lower, edge.uuid) == sorted(edge.files.values())
    assert contents(upper, forwarder.uuid) == sorted(edge.files.values())


def test_bytes_that_rotted_at_the_centre_do_not_travel_on(chain):
    edge, lower, forwarder, upper = chain
    edge.write(1)
    edge.write(2)
    edge.round()
    (physical,) = (each for each in lower.data.glob("sequence/**/*-1-0-0.*.tsfile"))
    content = bytearray(physical.read_bytes())
    content[20] ^= 1
    physical.write_bytes(content)
    report = forwarder.round()
    assert report.exit_code == 3
    assert "fsck" in report.failed[0].reason
    good = hashlib.md5(edge.content(edge.path(2))).hexdigest()
    assert contents(upper, forwarder.uuid) == [good]


def test_a_lower_centre_that_is_down_deletes_nothing_above(chain):
    edge, lower, forwarder, upper = chain
    edge.write(1)
    edge.round()
    forwarder.round()
    lower.stop()
    forwarder.with_settings(
        transfer=msgspec.structs.replace(forwarder.config.transfer, max_retries=1)
    )
    report = forwarder.round()
    assert report.exit_code == 4
    assert len(contents(upper, forwarder.uuid)) == 1
