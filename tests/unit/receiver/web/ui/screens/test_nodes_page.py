"""Storage nodes, data directories and tokens on the page: shown, and what is done about them."""

from __future__ import annotations

import shutil

import pytest

from receiver.datadirs import disks as disks_module
from receiver.metadata.model import records
from receiver.operator.edges.tokens import list_tokens, make_token
from receiver.operator.places.node_lists import list_nodes
from receiver.web.app import close, site_of
from receiver.web.ui.drawing.page_templates import link
from tests.support.heard_nodes import HeldByTest, SpeakingNode, tablet
from tests.support.node_world import A, Edge, path_of, tsfile
from tests.support.page_reader import HOSTILE, Person
from tests.unit.receiver.web.ui.test_page_actions import said
from tests.unit.receiver.web.ui.test_pages_shown import SHOWN


@pytest.fixture
def speaking(node, tmp_path):
    """A storage node that has spoken, with a tablet that the catalogue does not have."""
    store = HeldByTest()
    store.put(tablet(7, files=3, size=4096))
    speaking = SpeakingNode(tmp_path / "store-one", store)
    speaking.settle(node.nodes)
    yield speaking
    speaking.close()


def registered(number, name, host="rack"):
    return records.NodeRegistered(
        uuid=f"{number:032x}", kind="remote", name=name, host=host, instance=1, addresses=()
    )


def silent(node, uuid):
    """Have a node that was heard be silent."""
    node.nodes._heard[uuid].heard -= 10_000


def node_links(read):
    return [each for each in read.links() if each.startswith("/ui/node/")]


def states(node):
    return {each.uuid: each.state for each in list_nodes(node.operator).nodes}


def test_nodes_and_directories_are_told_of(operator, node, edges, speaking):
    read = operator.see("/ui/nodes")
    for words in (
        speaking.url,
        "live",
        "0 s ago",
        "4.0 KiB",
        str(node.config.data_dirs[0]),
        "here",
    ):
        assert words in read.text
    assert "1 tablets are not of this catalogue" in read.text
    page = operator.see(f"/ui/node/{speaking.uuid}")
    assert f"{7:032x}" in page.text
    silent(node, speaking.uuid)
    read = operator.see("/ui/nodes?only=trouble")
    assert node_links(read) == [f"/ui/node/{speaking.uuid}"]
    assert "silent" in read.text
    assert "2 h ago" in read.text


def test_names_of_nodes_are_no_markup(operator, node):
    node.engine.commit([registered(1, HOSTILE, HOSTILE)])
    for path in ("/ui/nodes", f"/ui/node/{1:032x}", link("do", "accept-node", node=f"{1:032x}")):
        assert SHOWN in operator.see(path).text


def test_nodes_are_found_and_sorted(operator, node, edges):
    node.engine.commit([registered(1, "north"), registered(2, "south", "cellar")])
    north, south = (f"/ui/node/{each:032x}" for each in (1, 2))
    for text, found in (("SOU", [south]), ("cellar", [south]), (f"{1:032x}", [north]), ("x", [])):
        assert node_links(operator.see(link("nodes", q=text))) == found
    everything = node_links(operator.see("/ui/nodes"))
    assert everything[-2:] == [north, south]
    assert node_links(operator.see("/ui/nodes?down=1"))[:2] == [south, north]
    with_files = node_links(operator.see("/ui/nodes?sort=files&down=1"))[0]
    assert with_files == everything[0], "the directory that the files are in"


def test_ten_thousand_nodes_come_in_pages(operator, node):
    node.engine.commit([registered(n, f"node {n:05}") for n in range(10_000)])
    read = operator.see("/ui/nodes?sort=heard")
    assert "10 000 storage nodes" in read.text
    assert len(node_links(read)) == 50
    (further,) = [each["href"] for each in read.all("a") if each.get("rel") == "next"]
    assert "51 to 100 of" in operator.see(further).text


def test_a_directory_is_drained_and_takes_files_again(operator, node, edges):
    uuid = node_links(operator.see("/ui/nodes"))[0].rpartition("/")[2]
    read, answer = operator.do(link("do", "drain-node", node=uuid))
    assert (
        f"Nothing new comes to the data directory {node.config.data_dirs[0]} ({uuid})" in read.text
    )
    assert "3 files" in read.text
    assert "is drained" in said(operator, answer)
    assert states(node)[uuid] == "draining"
    assert "drained already" in operator.see(link("do", "drain-node", node=uuid), 409).text
    (other,) = set(states(node)) - {uuid}
    assert "no other data directory" in operator.see(link("do", "drain-node", node=other), 409).text
    _, answer = operator.do(link("do", "undrain-node", node=uuid))
    assert "again" in said(operator, answer)
    assert states(node)[uuid] == "standing"


def test_a_node_is_lost_only_when_it_is_silent_and_comes_back(operator, node, speaking):
    uuid = speaking.uuid
    for action in ("lose-node", "forget-node"):
        assert "stop it first" in operator.see(link("do", action, node=uuid), 409).text
    silent(node, uuid)
    _, answer = operator.do(link("do", "lose-node", node=uuid))
    assert "What lies there" in said(operator, answer)
    assert states(node)[uuid] == "lost"
    _, answer = operator.do(link("do", "node-found", node=uuid))
    assert "is heard again" in said(operator, answer)
    _, answer = operator.do(link("do", "accept-node", node=uuid))
    assert "next start" in said(operator, answer)
    node.engine.commit([records.NodeLost(uuid)])
    _, answer = operator.do(link("do", "forget-node", node=uuid))
    assert "is forgotten" in said(operator, answer)
    assert uuid not in states(node)


@pytest.fixture
def bereft(make_page_app, world, monkeypatch):
    """An operator at a receiver that has lost a directory: one file comes again, one does not."""
    monkeypatch.setattr(disks_module, "device_of", lambda tree: hash(tree.path.name))
    free = {"data": 9, "data2": 5}
    monkeypatch.setattr(disks_module, "free_bytes", lambda path: free[path.name])
    app = make_page_app()
    node = site_of(app).node
    edge = Edge(node, uuid=A)
    edge.round({path_of(n): tsfile(f"root.sg.d{n}", first=n) for n in (1, 2)})
    with node.engine.reading() as state:
        row = state.file_table.held(A, path_of(1))
    node.engine.commit([records.FileRetired(row.physical)])
    close(app)
    shutil.rmtree(world.data)
    app = make_page_app()
    person = Person(app)
    person.login("operators-secret")
    return person


@pytest.mark.parametrize("action", ["lose-node", "replace-node"])
def test_what_a_lost_directory_takes_along_is_said_before_it_is_done(bereft, world, action):
    node = site_of(bereft.app).node
    uuid = next(each for each, state in states(node).items() if state == "away")
    assert "away" in bereft.see("/ui/nodes").text
    path = {}
    if action == "replace-node":
        world.data.mkdir()
        path = {"path": str(world.data)}
        assert "comes in its place" in bereft.see(link("do", action, node=uuid)).text
    read, answer = bereft.do(link("do", action, node=uuid, **path))
    for words in (
        "Gone for good: 1 file",
        "again at their edges: 1 file",
        f"Gone are: {path_of(1)}",
    ):
        assert words in read.text
    assert "1 file asked for again, 1 file gone" in said(bereft, answer)
    assert "lost" in states(node).values()
    if path:
        assert any(world.data.iterdir()), "it is marked as a directory of this receiver"


def test_a_loss_that_has_grown_since_it_was_read_is_read_anew(bereft):
    node = site_of(bereft.app).node
    uuid = next(each for each, state in states(node).items() if state == "away")
    read = bereft.see(link("do", "lose-node", node=uuid))
    with node.engine.reading() as state:
        row = state.file_table.held(A, path_of(2))
    node.engine.commit([records.FileRetired(row.physical)])
    assert bereft.send("/ui/do/lose-node", read.fields()).status_code == 409
    assert states(node)[uuid] == "away"


# -- tokens ----------------------------------------------------------------------------------------


def test_tokens_are_listed_without_their_secrets(operator, node, edges, clock):
    made = make_token(node.engine, "sender", sender=A, note=HOSTILE, lasts=60, allow_deletes=False)
    make_token(node.engine, "writer", owners=["*"], note="jobs")
    clock.now += 3600
    read = operator.see("/ui/tokens")
    for words in (made.id, SHOWN, "plant 7", "all edges", "ended", "never", "deletes nothing"):
        assert words in read.text
    assert made.token not in read.text
    assert made.token.split("_", 2)[2] not in read.text
    assert made.id not in operator.see("/ui/tokens?role=writer").text
    assert made.id in operator.see("/ui/tokens?q=PLANT").text
    assert "No token is found" in operator.see("/ui/tokens?q=nothing").text


def test_a_token_is_revoked_after_it_was_said_whose_it_is(operator, node, edges):
    made = make_token(node.engine, "sender", sender=A, note="plant")
    read, answer = operator.do(link("do", "revoke-token", token=made.id))
    assert f"Token {made.id} (plant) is revoked: role sender, of the edge plant 7" in read.text
    assert "is revoked" in said(operator, answer)
    assert list_tokens(node.engine) == []


def test_who_revokes_the_token_of_the_session_is_told_and_logged_out(app, node):
    made = make_token(node.engine, "operator")
    person = Person(app)
    person.login(made.token)
    read, answer = person.do(link("do", "revoke-token", token=made.id))
    assert "your session ends with it" in read.text
    assert person.ask("GET", answer.headers["Location"]).status_code == 303


def test_who_may_only_look_sees_no_tokens(reader):
    assert "/ui/tokens" not in reader.see("/ui/").links()
    assert "/ui/nodes" in reader.see("/ui/").links()
    reader.see("/ui/tokens", 403)
