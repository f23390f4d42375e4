"""The page of a node that only reads: it shows the same, and sends changes to the receiver."""

from __future__ import annotations

import msgspec
import pytest

from common.config import Secret
from receiver.config import FollowConfig
from receiver.operator.edges.tokens import make_token
from receiver.web.app import close, create_app, site_of
from receiver.web.ui.actions.page_action import Confirmation
from receiver.web.ui.drawing.page_templates import link
from tests.support.followed import wait_for
from tests.support.node_world import A
from tests.support.page_reader import Person, Read
from tests.support.web import running

ELSEWHERE = "https://centre.example.com:8765"


@pytest.fixture
def person(app, edges, tmp_path, monkeypatch):
    """An operator at a node that follows the receiver."""
    monkeypatch.setattr("receiver.follower.follower._WAIT", 0.1)
    token = make_token(site_of(app).node.engine, "operator").token
    with running(app, gate=site_of(app).gate) as server:
        host, port = server.addresses[0]
        url = f"http://{host}:{port}"
        follow = FollowConfig(url=url, token=Secret("operators-secret"), writer=ELSEWHERE)
        config = site_of(app).config
        reads = create_app(
            msgspec.structs.replace(config, schema_dir=tmp_path / "reader", follow=follow)
        )
        node = site_of(reads).node
        wait_for(lambda: node.follows().level_at)
        person = Person(reads)
        assert person.login(token).status_code == 303
        yield person
        close(reads)


def test_every_page_shows_what_the_receiver_has(person):
    for path in person.see("/ui/").links():
        if path.startswith("/ui/"):
            person.see(path)
    assert "plant 7" in person.see("/ui/").text
    assert "follows another" in person.see("/ui/engine").text


def test_nothing_is_changed_there(person, node):
    assert [each for each in person.see("/ui/owners").links() if "/do/" in each] == []
    asked = link("do", "release", device="root.sg.d1")
    read = person.see(asked)
    assert "done at the receiver that it follows" in read.text
    assert "seen" not in read.fields()
    seen = Confirmation(tuple(each for each in read.items), "").mark
    form = {**read.fields(), "device": "root.sg.d1", "seen": seen}
    answer = person.send("/ui/do/release", form)
    assert answer.status_code == 421
    assert ELSEWHERE in Read(answer.get_data(as_text=True)).text
    with node.engine.reading() as state:
        assert state.owners["root.sg.d1"].sender == A
