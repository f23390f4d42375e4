"""What is done from a page is what was read before, by who may, once."""

from __future__ import annotations

import json
import logging

import pytest

from common.wire import Propagate
from receiver.metadata.model import records
from receiver.operator.asked_work.background_tasks import add_task
from receiver.operator.edges.lost import list_lost
from receiver.operator.edges.owners import set_owner
from receiver.operator.edges.tokens import make_token
from receiver.operator.stored.quarantine import list_quarantine
from receiver.operator.views.background_views import TaskAddRequest
from receiver.transfer import epochs
from receiver.web.app import site_of
from receiver.web.ui.actions.confirming_page import _ACTIONS
from receiver.web.ui.drawing.page_templates import link
from tests.support.node_world import OPERATOR, A, B, Edge, path_of, tsfile
from tests.support.page_reader import Person, Read
from tests.unit.receiver.web.ui.test_pages_shown import SHOWN, quarantine


def owners(node):
    with node.engine.reading() as state:
        return {device: row.sender for device, row in state.owners.items()}


def said(person, answer):
    """What the page says that one comes back to."""
    return person.see(answer.headers["Location"]).text


def test_a_device_is_released(operator, node, edges):
    read, answer = operator.do(link("do", "release", device="root.sg.d1"))
    assert f"root.sg.d1 belongs to plant 7 ({A}) since" in read.text
    assert "root.sg.d1" not in owners(node)
    assert "1 device free: root.sg.d1." in said(operator, answer)
    assert "1 device free" not in operator.see("/ui/owners").text, "it is said once"


def test_devices_are_transferred_to_an_edge_that_is_named_by_its_label(operator, node, edges):
    asking = operator.see(link("do", "transfer", device="root.other.**"))
    assert "plant 7" in [each.get("value") for each in asking.all("option")]
    read, answer = operator.do(link("do", "transfer", device="root.other.**", sender="plant 7"))
    assert "root.other.** means 1 device" in read.text
    assert SHOWN in read.text
    assert set(owners(node).values()) == {A}
    assert "1 device transferred to plant 7, 1 file ended." in said(operator, answer)


def test_what_has_changed_since_it_was_read_is_not_done(operator, node, edges):
    read = operator.see(link("do", "release", device="root.sg.d1"))
    set_owner(node.engine, OPERATOR, "root.sg.d1", B)
    answer = operator.send("/ui/do/release", read.fields())
    assert answer.status_code == 409
    again = Read(answer.get_data(as_text=True))
    assert "It has changed since you read it" in again.text
    assert owners(node)["root.sg.d1"] == B
    assert operator.send("/ui/do/release", again.fields()).status_code == 303
    assert "root.sg.d1" not in owners(node)


def test_what_is_done_twice_is_done_once(operator, node, edges):
    read, _ = operator.do(link("do", "release", device="root.sg.d1"))
    answer = operator.send("/ui/do/release", read.fields())
    assert answer.status_code == 404
    assert "nobody owns the device" in Read(answer.get_data(as_text=True)).text


def test_an_edge_goes_on_in_the_place_of_another(operator, node, edges):
    read, answer = operator.do(link("do", "adopt", sender=A, by=B))
    assert "2 devices" in read.text
    assert set(owners(node).values()) == {B}
    assert "has 2 devices of plant 7; 2 files ended." in said(operator, answer)
    assert "cannot adopt itself" in operator.see(link("do", "adopt", sender=A, by=A), 400).text


def test_the_next_machine_is_accepted(operator, node, edges):
    _, answer = operator.do(link("do", "accept", sender=A))
    assert "is accepted" in said(operator, answer)
    with node.engine.reading() as state:
        assert state.senders[A].restored


def test_it_is_said_when_an_edge_is_late(operator, node, edges, clock):
    asking = operator.see(link("do", "lateness", sender=A))
    assert asking.all("option") == [], "labels are no durations"
    read, answer = operator.do(link("do", "lateness", sender=A, late_after="90m"))
    assert "silent for longer than 90m" in read.text
    assert "plant 7 is late after: 90m." in said(operator, answer)
    clock.now += 5401
    assert "late" in operator.see(f"/ui/edge/{A}").text.split()
    assert "expected 2d" in operator.see(link("do", "lateness", sender=A, late_after="x"), 400).text


def test_an_edge_is_removed(operator, node, edges):
    make_token(node.engine, "sender", sender=A)
    read, answer = operator.do(link("do", "remove", sender=A))
    for words in ("1 token.", "2 devices.", "2 files"):
        assert words in read.text
    with node.engine.reading() as state:
        assert epochs.is_removed(state.senders[A])
    text = said(operator, answer)
    assert "1 token, 2 devices; 2 files ended" in text
    assert "It was removed by an operator" in text


def test_a_file_in_quarantine_is_looked_at_again_and_dropped(operator, node, edges):
    quarantine(node, path_of(9))
    (entry,) = list_quarantine(node.engine)
    key = {"sender": A, "path": entry.path, "digest": entry.digest}
    read, answer = operator.do(link("do", "retry", **key), code=409)
    assert "looked at again" in read.text
    assert "still refused" in Read(answer.get_data(as_text=True)).text
    read, answer = operator.do(link("do", "drop", **key))
    assert "with the bytes that are kept of it" in read.text
    assert "dropped" in said(operator, answer)
    assert list_quarantine(node.engine) == []
    assert "is not in quarantine" in operator.see(link("do", "drop", **key), 404).text


def test_held_deletions_are_let_through_or_refused(make_page_app, world):
    world.deletes = {"max_fraction": 0.1, "from_files": 1}
    app = make_page_app()
    node, person = site_of(app).node, Person(app)
    person.login("operators-secret")
    edge = Edge(node, uuid=A)
    for act, state in (("keep", "retired"), ("allow", "deleted")):
        files = {path_of(n, sg=f"root.{act}"): tsfile(f"root.{act}.d", first=n) for n in (1, 2)}
        edge.round(files, propagate=Propagate.ALL)
        edge.round({}, list(files), propagate=Propagate.ALL)
        page = person.see("/ui/deletes")
        (where,) = [each for each in page.links() if f"/do/{act}" in each]
        read, answer = person.do(where)
        assert "2 files" in read.text
        assert "No deletions are held" in said(person, answer)
        edge.round({}, list(files), propagate=Propagate.ALL)
        with node.engine.reading() as found:
            states = {str(row.state) for row in found.files.values() if f".{act}/" in row.path}
        assert states == {state}


def test_a_retired_file_is_given_up_and_comes_back(operator, node, edges):
    edges[0].round({}, [path_of(1)])
    (where,) = [each for each in operator.see("/ui/retired").links() if "give-up" in each]
    read, answer = operator.do(where)
    assert "they may exist nowhere else" in read.text
    assert "is given up" in said(operator, answer)
    (file,) = [
        each
        for each in operator.see(link("files", state="deleted")).links()
        if each.startswith("/ui/file?")
    ]
    (back,) = [each for each in operator.see(file).links() if "undelete" in each]
    _, answer = operator.do(back)
    assert "is visible again" in said(operator, answer)


def test_a_loss_is_acknowledged(operator, node, edges):
    node.engine.commit(
        [
            records.FileLost(
                sender=A, path=path_of(n), md5="0" * 32, size=5, first=1, last=2, reason="gone"
            )
            for n in (21, 22, 23)
        ]
    )
    read, answer = operator.do(link("do", "acknowledge", sender=A, path=path_of(22)))
    assert "1 file of plant 7" in read.text
    assert "1 lost file acknowledged" in said(operator, answer)
    assert len(list_lost(node.engine)) == 2
    (every,) = [
        each
        for each in operator.see(link("lost", edge=A)).links()
        if "acknowledge" in each and "path" not in each
    ]
    operator.do(every)
    assert list_lost(node.engine) == []


def test_a_task_is_cancelled_and_tried_again(operator, node, edges):
    task = str(
        add_task(node.engine, node.operator.work, TaskAddRequest(kind="merge", group="root.sg"))
    )
    read, answer = operator.do(link("do", "cancel", task=task))
    assert f"Task {task}, merge of root.sg" in read.text
    assert "is cancelled" in said(operator, answer)
    _, answer = operator.do(link("do", "try-again", task=task))
    assert f"Task {task} waits again" in said(operator, answer)
    again = operator.see(link("do", "try-again", task=task), 409)
    assert "neither failed nor cancelled" in again.text


def test_a_clock_that_nobody_doubts_is_not_confirmed(operator):
    assert "not in doubt" in operator.see(link("do", "confirm-clock"), 409).text


def test_who_may_only_look_changes_nothing(operator, reader, node, edges):
    read = operator.see(link("do", "release", device="root.sg.d1"))
    assert "may look" in reader.see(link("do", "release", device="root.sg.d1"), 403).text
    own = reader.see("/ui/").fields()["csrf"]
    answer = reader.send("/ui/do/release", {**read.fields(), "csrf": own})
    assert answer.status_code == 403
    assert "root.sg.d1" in owners(node)


def test_who_was_made_less_in_between_changes_nothing(operator, node, edges, monkeypatch):
    read = operator.see(link("do", "release", device="root.sg.d1"))
    access = site_of(operator.app).access
    monkeypatch.setattr(access, "_local_operator", "another")
    assert operator.send("/ui/do/release", read.fields()).status_code == 303
    assert "root.sg.d1" in owners(node)


@pytest.mark.parametrize("name", sorted(_ACTIONS))
def test_nothing_is_done_by_a_get_and_nothing_without_its_fields(operator, node, edges, name):
    before = node.engine.newest_commit
    answer = operator.ask("GET", link("do", name))
    assert answer.status_code in (200, 400, 404, 409)
    csrf = operator.see("/ui/").fields()["csrf"]
    answer = operator.send(f"/ui/do/{name}", {"csrf": csrf, "seen": ""})
    assert answer.status_code in (400, 404, 409)
    assert node.engine.newest_commit == before


def test_what_is_done_is_logged_with_the_token(operator, node, edges, caplog):
    with caplog.at_level(logging.INFO, "audit"):
        operator.do(link("do", "release", device="root.sg.d1"))
    (record,) = caplog.records
    assert record.token == "local-operator"
    assert (record.event, record.target) == ("do_action", "action=release")
    assert json.loads(record.asked)["device"] == "root.sg.d1"
