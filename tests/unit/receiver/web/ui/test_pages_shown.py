"""What the pages show: of nothing, of something, of names that are no good, to whom."""

from __future__ import annotations

import json

import pytest

from common.hooks.hooks_config import HooksConfig
from receiver.metadata.model import records
from receiver.metadata.sql.executing import execute
from receiver.metadata.state.table_rows import AdoptionRow
from receiver.metadata.state.tables.file_tables.files import FileTable
from receiver.operator.asked_work.background_tasks import add_task
from receiver.operator.edges.owners import set_owner
from receiver.operator.edges.tokens import make_token
from receiver.operator.views.background_views import TaskAddRequest
from receiver.web.app import site_of
from receiver.web.ui.drawing.page_templates import link
from tests.support.node_world import OPERATOR, A, B, Edge, path_of, sender, tsfile
from tests.support.page_reader import HOSTILE, Person
from tests.support.tsfile_bytes import build
from tests.unit.receiver.web.ui.conftest import BAD_NODE, call_it, says

SHOWN = HOSTILE.replace("\u202e", "\\u202e")
EMPTY = {
    "/ui/": "No edge has been here yet",
    "/ui/files": "No file is found by this",
    "/ui/groups": "Nothing was loaded yet",
    "/ui/owners": "No device has an owner",
    "/ui/quarantine": "Nothing is in quarantine",
    "/ui/deletes": "No deletions are held",
    "/ui/retired": "No file is retired",
    "/ui/retired?state=superseded": "No file is superseded",
    "/ui/lost": "Nothing is lost",
    "/ui/tasks": "There are no background tasks",
    "/ui/tasks?state=failed": "No task is failed",
    "/ui/verification": "None is configured",
    "/ui/engine": "takes files",
    "/ui/nodes": "There is no storage node",
    "/ui/tokens": "There are no tokens",
    "/ui/history": "The newest first",
}


@pytest.mark.parametrize("path", EMPTY)
def test_nothing_is_said_as_such(operator, path):
    assert EMPTY[path] in operator.see(path).text


def test_every_page_of_the_navigation_is_there_and_says_where_one_is(operator):
    read = operator.see("/ui/")
    for path in read.links():
        if path.startswith("/ui/") and "?" not in path:
            page = operator.see(path)
            here = [each for each in page.all("a") if each.get("aria-current") == "page"]
            assert [each["href"] for each in here] == [path]
            assert page.all("a")[0] == {"class": "skip", "href": "#main"}


def test_who_has_no_mouse_gets_to_the_content(operator, edges):
    for path in ("/ui/", f"/ui/edge/{A}", "/ui/owners"):
        read = operator.see(path)
        (main,) = read.all("main")
        assert main["id"] == "main"
        assert main["tabindex"] == "-1"
        assert {"header", "nav", "main"} <= {tag for tag, _ in read.tags}


# -- fleet and edge --------------------------------------------------------------------------------


def test_the_fleet_tells_of_every_edge(operator, node, edges):
    says(node, A, pending_files=3, pending_bytes=4096, complete_until=1_600_000_000_000)
    read = operator.see("/ui/")
    assert f"/ui/edge/{A}" in read.links()
    for words in ("plant 7", "4.0 KiB", "2020-09-13 12:26:40Z", "9.9", "0 s ago", SHOWN):
        assert words in read.text


def test_a_long_trouble_is_seen_to_be_cut_and_is_there_whole(operator, node, edges):
    problem = f"no space to write /{'d' * 100}/looks.state"
    says(node, A, problem=problem)
    read = operator.see("/ui/")
    assert f"its last round: {problem}"[:77] + "..." in read.text
    assert f"its last round: {problem}" in [each.get("title") for each in read.all("span")]


def test_an_edge_is_found_by_its_name_its_uuid_and_its_address(operator, edges):
    for text, found in (("PLANT", True), (A[:6], True), ("10.0.0.7", True), ("other", False)):
        read = operator.see(link(q=text))
        assert (f"/ui/edge/{A}" in read.links()) is found
        assert text in [each.get("value") for each in read.all("input")]


def test_ten_thousand_edges_come_in_pages(operator, node):
    def seen(numbers):
        return [
            records.SenderSeen(f"{n:032x}", f"edge {n:05}", f"10.0.0.7_{n:032x}") for n in numbers
        ]

    node.engine.commit(seen(range(10_000)))
    read = operator.see("/ui/")
    assert "10 000 edges" in read.text
    edges = [each for each in read.links() if each.startswith("/ui/edge/")]
    assert len(edges) == 50
    (further,) = [each["href"] for each in read.all("a") if each.get("rel") == "next"]
    assert further == "/ui/?from=50"
    last = operator.see("/ui/?from=9950")
    assert "9 951 to 10 000 of 10 000" in last.text
    assert [each for each in last.all("a") if each.get("rel") == "next"] == []
    down = operator.see("/ui/?down=1&count=100")
    first = next(each for each in down.links() if each.startswith("/ui/edge/"))
    assert first == f"/ui/edge/{9999:032x}"
    assert f"/ui/edge/{1234:032x}" in operator.see("/ui/?q=01234").links()


@pytest.mark.parametrize(
    ("order", "down", "first"),
    [
        ("label", "", B),
        ("label", "1", A),
        ("files", "1", A),
        ("bytes", "", B),
        ("pending", "1", B),
        ("heard", "", A),
        ("complete", "1", B),
        ("version", "1", B),
        ("trouble", "1", A),
    ],
)
def test_the_fleet_is_sorted(operator, node, edges, clock, order, down, first):
    says(node, A, pending_files=1)
    clock.now += 60
    says(node, B, version="9.9.9", pending_files=2, complete_until=5)
    quarantine(node, path_of(9))
    read = operator.see(link(sort=order, down=down))
    assert next(each for each in read.links() if "/edge/" in each) == f"/ui/edge/{first}"
    (head,) = [each for each in read.all("th") if "aria-sort" in each]
    assert head["aria-sort"] == ("descending" if down else "ascending")


def quarantine(node, path, uuid=A):
    bad = b"no TsFile"
    view = node.uploads.create(sender(uuid), uuid, len(bad), {"path": path})
    with pytest.raises(Exception, match="TsFile"):
        node.uploads.patch(sender(uuid), view.id, 0, bad)


def test_trouble_is_found_by_itself(operator, node, edges):
    quarantine(node, path_of(9))
    read = operator.see("/ui/?only=trouble")
    assert [each for each in read.links() if "/edge/" in each] == [f"/ui/edge/{A}"]
    assert "1 in quarantine" in read.text
    page = operator.see(f"/ui/edge/{A}")
    assert "1 in quarantine" in page.text
    assert path_of(9) in page.text


def test_what_came_lately_is_drawn(operator, edges):
    read = operator.see("/ui/")
    assert len(read.all("svg")) == 2
    drawn = [each for each in read.all("rect") if each["y"] == "0"]
    assert len(drawn) == 2, "the last hour of each is its highest"


def test_an_edge_is_shown_with_its_files(operator, node, edges):
    says(node, A, state="waiting", pending_files=7)
    read = operator.see(f"/ui/edge/{A}")
    for words in ("plant 7", A, "waiting", "7 files", "2 files", path_of(1), path_of(2)):
        assert words in read.text
    assert SHOWN in operator.see(f"/ui/edge/{B}").text


def test_a_reader_sees_no_buttons(operator, reader, node, edges):
    quarantine(node, path_of(9))
    for path in (f"/ui/edge/{A}", "/ui/owners", "/ui/quarantine", "/ui/retired"):
        assert [each for each in reader.see(path).links() if "/do/" in each] == []
    assert [each for each in operator.see("/ui/owners").links() if "/do/" in each] != []
    assert "reader" in reader.see("/ui/").text


# -- files -----------------------------------------------------------------------------------------


def paths(read):
    return [each for each in read.links() if each.startswith("/ui/file?")]


def test_files_are_searched(operator, edges):
    assert len(paths(operator.see("/ui/files"))) == 3
    for query, count in (
        ({"edge": "plant 7"}, 2),
        ({"edge": B}, 1),
        ({"path": "root.sg"}, 2),
        ({"path": "sequence/root.other/"}, 1),
        ({"path": path_of(1)}, 1),
        ({"state": "live", "edge": A}, 2),
        ({"state": "live", "edge": A, "path": path_of(2)}, 1),
        ({"state": "retired"}, 0),
        ({"begin": "50", "path": "root.sg"}, 1),
        ({"end": "50", "path": "root.sg"}, 1),
        ({"end": "1970-01-01T00:00:00.050Z", "path": "root.sg"}, 1),
        ({"begin": "2030-01-01"}, 0),
    ):
        assert len(paths(operator.see(link("files", **query)))) == count, query


def test_files_come_in_pages_that_go_on(operator, node):
    edge = Edge(node, uuid=A)
    edge.round({path_of(n): tsfile("root.sg.d1", first=n * 10) for n in range(1, 61)})
    seen = []
    where = "/ui/files?path=root.sg"
    while where:
        read = operator.see(where)
        seen += paths(read)
        more = [each["href"] for each in read.all("a") if each.get("rel") == "next"]
        where = more[0] if more else ""
    assert len(seen) == len(set(seen)) == 60


def test_files_are_shown_as_they_were(operator, node, edges):
    before = node.engine.newest_commit
    edges[0].round({}, [path_of(1)])
    read = operator.see(link("files", state="retired"))
    assert len(paths(read)) == 1
    assert "sequence/root.sg/0/0/" in operator.see("/ui/retired").text
    was = operator.see(link("files", at=before))
    assert len(paths(was)) == 3
    assert f"commit {before}" in was.text
    first = operator.see(link("files", at=node.engine.oldest_answerable))
    assert paths(first) == []


def test_one_file_is_shown_with_its_devices(operator, edges):
    (where,) = paths(operator.see(link("files", edge=B)))
    read = operator.see(where)
    assert f"root.other.{BAD_NODE}" in read.text
    assert "there is no file" in operator.see(link("file", physical="<b>"), 404).text


# -- storage groups, owners, history ---------------------------------------------------------------


def test_storage_groups_and_their_tablets(operator, node, edges):
    read = operator.see("/ui/groups")
    assert "root.sg" in read.text
    group = next(each for each in read.links() if each.startswith("/ui/groups/"))
    assert "Partitions" in operator.see(group).text
    assert "Storage group root.sg" in operator.see("/ui/groups/root.sg").text
    shown = operator.see("/ui/groups/root.sg").text
    assert "2 series that live in it" in shown
    assert " 10 points" in shown
    before = link("groups", at=node.engine.oldest_answerable)
    assert "Nothing was loaded then" in operator.see(before).text


def test_a_database_of_tables_has_its_tables_and_its_ttl(operator, node):
    Edge(node).round({path_of(1, sg="plant"): build({("pumps", "p1"): {"flow": [(1, 1.5)]}})})
    execute(node.engine, "set ttl to root.`/plant` 86400000000")
    assert "1000.0 d" in operator.see("/ui/groups").text
    shown = operator.see("/ui/groups/plant").text
    assert "1 series that live in it" in shown
    assert "pumps" in shown


def test_points_a_day_are_drawn_and_told_by_partition(operator, edges):
    read = operator.see("/ui/groups/root.sg")
    (drawn,) = [each for each in read.all("svg") if each.get("class") == "points"]
    assert "the most is 1" in drawn["aria-label"], "10 points in a week"
    assert "1970-01-01: 1 points a day, 2 files" in read.text
    table = next(each for each in read.links() if each.endswith("/partitions"))
    told = operator.see(table).text
    for words in ("2 files", "10 points", "1970-01-01", "Points a day"):
        assert words in told
    assert "No partition from" in operator.see(f"{table}?until=-500").text
    operator.see(f"{table}?until=9;", 400)


def test_links_of_a_partition_show_its_files_whatever_their_virtual_groups_are(operator, node):
    def of_region(region, number):
        return path_of(number, sg="root.v", partition=2).replace("/0/2/", f"/{region}/2/")

    edge = Edge(node, uuid=A)
    edge.round({of_region(3, 1): tsfile("root.v.d1")})

    def found(page):
        read = operator.see(page)
        ways = [
            each
            for each in read.links()
            if "/ui/files?path=root.v%2F" in each and "%2F2%2F" in each
        ]
        return [len(paths(operator.see(each))) for each in ways]

    assert found("/ui/groups/root.v/partitions") == [1]
    assert found("/ui/groups/root.v") == [1]
    edge.round({of_region(n, n): tsfile(f"root.v.e{n}") for n in (4, 12)})
    assert found("/ui/groups/root.v/partitions") == [1, 1, 1]
    assert found("/ui/groups/root.v") == [1, 1, 1]
    was = operator.see(link("groups", "root.v", at=node.engine.newest_commit))
    (way,) = {each for each in was.links() if "/ui/files?path=root.v%2F&" in each}
    assert len(paths(operator.see(way))) == 3
    edge.round({of_region(4, 4): tsfile("root.v.e4")}, [of_region(3, 1), of_region(12, 12)])
    with node.engine.reading() as state:
        assert state.file_table.by_partition.regions("root.v") == ["3", "4", "12"], "retired, kept"


def test_the_tree_of_a_group_is_walked_down_to_its_series(operator, edges):
    top = operator.see("/ui/groups/root.sg")
    (way,) = [each for each in top.links() if "node=root.sg.d1" in each]
    device = operator.see(way)
    for words in ("A device of plant 7", "INT64 series", "Newest time loaded"):
        assert words in device.text
    back = [each for each in device.links() if each.endswith("/tree")]
    assert "root.sg.d2" in " ".join(operator.see(back[0]).links())
    assert "no node" in operator.see(link("groups", "root.sg", "tree", node="root.x"), 404).text


def test_a_tree_with_names_that_are_no_good_is_walked_all_the_same(operator, edges):
    top = operator.see("/ui/groups/root.other")
    (way,) = [each for each in top.links() if "node=" in each]
    assert f"root.other.{BAD_NODE}" in operator.see(way).text


def test_the_tree_of_a_group_comes_in_pages(operator, node):
    Edge(node, uuid=A).round({path_of(n): tsfile(f"root.sg.d{n:03}") for n in range(1, 131)})
    top = operator.see("/ui/groups/root.sg")
    assert len([each for each in top.links() if "node=" in each]) == 20
    assert "All 130" in top.text
    where, seen = "/ui/groups/root.sg/tree", []
    while where:
        read = operator.see(where)
        seen += [each for each in read.links() if "node=" in each and "after=" not in each]
        more = [each["href"] for each in read.all("a") if each.get("rel") == "next"]
        where = more[0] if more else ""
    assert len(seen) == len(set(seen)) == 130


def test_owners_are_found_by_how_their_devices_begin(operator, edges):
    assert "root.sg.d1" in operator.see("/ui/owners").text
    read = operator.see(link("owners", device="root.sg.d2"))
    assert "root.sg.d2" in read.text
    assert "root.sg.d1" not in read.text
    assert "No device with an owner begins so" in operator.see(link("owners", device="x")).text
    hostile = operator.see(link("owners", device="root.other"))
    assert f"root.other.{BAD_NODE}" in hostile.text


def test_a_conflict_is_shown_with_both_edges(operator, node, edges):
    edges[1].round({path_of(8): tsfile("root.sg.d1", salt=1)})
    read = operator.see("/ui/owners")
    assert "1 file with a device of another edge" in read.text
    assert path_of(8) in read.text
    assert link("owners", device="root.sg.d1") in operator.see(f"/ui/edge/{B}").links()
    give = link("do", "transfer", device="root.sg.d1", sender=B)
    assert give in read.links()
    set_owner(node.engine, OPERATOR, "root.sg.d1", B)
    assert "No file is held" in operator.see("/ui/owners").text


def test_commits_are_shown_the_newest_first(operator, node, edges):
    read = operator.see("/ui/history")
    newest = str(node.engine.newest_commit)
    assert newest in read.text
    assert "2 × file loaded" in read.text
    for _ in range(60):
        make_token(node.engine, "reader")
    read = operator.see("/ui/history")
    (older,) = [each["href"] for each in read.all("a") if each.get("rel") == "next"]
    page = operator.see(older)
    assert "engine made" in page.text
    assert "2 × file loaded" in page.text
    assert "2 × file loaded" not in read.text


# -- quarantine, tasks, verification, engine -------------------------------------------------------


def test_quarantine_is_searched_and_in_pages(operator, node, edges):
    ops = [
        records.QuarantinePut(
            sender=A,
            path=path_of(n + 100),
            digest=f"{n:032x}",
            size=5,
            hold=True,
            reason=f"{HOSTILE} {n}",
            device=None,
            kept=None,
        )
        for n in range(70)
    ]
    node.engine.commit(ops)
    read = operator.see("/ui/quarantine")
    assert "70 files refused" in read.text
    assert SHOWN in read.text
    (further,) = [each["href"] for each in read.all("a") if each.get("rel") == "next"]
    assert "51 to 70 of 70" in operator.see(further).text
    assert "1 file refused" in operator.see(link("quarantine", path=path_of(107))).text
    assert "Nothing is found" in operator.see(link("quarantine", edge=B)).text


def test_tasks_are_shown(operator, node, edges):
    add_task(node.engine, node.operator.work, TaskAddRequest(kind="merge", group="root.sg"))
    read = operator.see("/ui/tasks")
    for words in ("merge", "root.sg"):
        assert words in read.text


REPORT = {
    "version": 2,
    "engine": "e" * 32,
    "commit": 5,
    "scope": "all <new> files",
    "time_unit": "ms",
    "begun": "2026-01-31T08:00:00Z",
    "seconds": 12.5,
    "master": "local",
    "files": 10,
    "proved": 8,
    "bad": 1,
    "unproved": 1,
    "problems": 0,
    "notes": 1,
    "bytes": 4096,
    "series": 10,
    "points": 1000,
    "chunks": 10,
    "pages": 10,
    "passed_over": 3,
    "merged_points": None,
    "findings": [
        {
            "severity": "bad",
            "check": "points",
            "physical": "sequence/root.sg/0/0/1-1-0-0.tsfile",
            "sender": A,
            "path": "x",
            "device": HOSTILE,
            "measurement": "s",
            "offset": 5,
            "detail": HOSTILE,
        },
        {
            "severity": "note",
            "check": "duplicates",
            "physical": "y",
            "sender": A,
            "path": "y",
            "device": None,
            "measurement": None,
            "offset": None,
            "detail": "no fault",
        },
    ],
}


def verified_by(make_page_app, directory, content):
    directory.mkdir(exist_ok=True)
    if content is not None:
        (directory / "report.json").write_text(content)
    person = Person(make_page_app(report=directory))
    person.login("operators-secret")
    return person.see("/ui/verification")


def test_the_last_report_is_shown(make_page_app, tmp_path):
    read = verified_by(make_page_app, tmp_path / "report", json.dumps(REPORT))
    for words in ("1 of 10 files bad", "all <new> files", SHOWN, "about another engine", "1 000"):
        assert words in read.text
    assert "no fault" not in read.text


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "No such file"), ("{", "is no report"), ("[]", "is no report"), ("\xff", "is no")],
)
def test_a_report_that_cannot_be_read_is_said_so(make_page_app, tmp_path, content, words):
    assert words in verified_by(make_page_app, tmp_path / "report", content).text


def test_the_engine_says_how_it_is(operator, node, edges):
    read = operator.see("/ui/engine")
    for words in (node.engine.uuid, str(node.engine.newest_commit), "takes files", "3, "):
        assert words in read.text


def test_hooks_say_whether_they_come_through(make_page_app, world):
    world.hooks = HooksConfig(command=("/bin/true",), events=("read_only",))
    app = make_page_app()
    person = Person(app)
    person.login("operators-secret")
    assert "comes through" in person.see("/ui/engine").text
    (way,) = site_of(app).node.hooks._ways
    way.queue.failed(f"exit code 3 {HOSTILE}")
    read = person.see("/ui/engine")
    for words in ("/bin/true", "nothing came through since", SHOWN):
        assert words in read.text
    assert "comes through" not in read.text


def test_what_was_adopted_says_so_until_it_is_verified(operator, node, edges):
    with node.engine.reading() as state:
        row = state.file_table.held(A, path_of(1))
        adopted = AdoptionRow(sender=A, task=row.task, source="/old", created=1, changed=1)
        state.adoption_table.restore(adopted)
    for path in ("/ui/files?state=adopted", f"/ui/edge/{A}"):
        assert operator.see(path).text.split().count("adopted") >= 2
    found = [each for each in operator.see("/ui/files?state=adopted").links() if "physical" in each]
    assert len(found) == 2, "those of that task, and not those of the other edge"
    assert "adopted from an old receiver" in operator.see(found[0]).text
    node.engine.commit([records.FileVerified([row.physical])])
    assert (
        "adopted from an old receiver" not in operator.see(link("file", physical=row.physical)).text
    )


def test_what_is_wrong_is_said_on_top(operator, node, monkeypatch):
    monkeypatch.setattr(node, "problem", lambda: f"the disk is {HOSTILE}")
    for path in ("/ui/", "/ui/engine"):
        assert f"takes no files: the disk is {SHOWN}" in operator.see(path).text


def test_no_page_looks_at_all_files(operator, node, edges, monkeypatch):
    """What every file would have to be looked at for is left to the commands."""
    monkeypatch.setattr("receiver.operator.status._of_visible", lambda _: 1 / 0)
    monkeypatch.setattr("receiver.operator.stored.storage.storage_in_catalogue", lambda _: 1 / 0)
    for path in ("/ui/", f"/ui/edge/{A}", *EMPTY):
        operator.see(path)
    group = "/ui/groups/root.sg"
    for many in ("among", "catalogue", "partition", "group"):
        monkeypatch.setattr(FileTable, many, lambda *_: 1 / 0)
    for path in ("", "/partitions", "/tree", "/tree?node=root.sg.d1"):
        operator.see(f"{group}{path}")


def test_labels_of_nobody_are_told_by_the_uuid(operator, node, edges):
    call_it(node, A, "")
    assert A[:8] in operator.see("/ui/files").text
