"""What commits of a real engine have to tell, by what edges do."""

import pytest

from common.errors import NotATsFileError
from receiver.hooks.commit_log import CommitLog
from receiver.hooks.receiver_hooks import receiver_source
from receiver.load.upkeep.verdicts import Verdict, record_verdicts
from receiver.metadata.model import records
from receiver.operator.stored.files import list_files
from tests.support.node_world import A, B, Edge, path_of, tsfile


@pytest.fixture
def node(world):
    node = world.still_node()
    yield node
    node.close()


@pytest.fixture
def log(node):
    return CommitLog(node.engine, receiver_source(node.engine.uuid))


def everything(log, place, wants=lambda kind: True):
    """All events behind a place, piece by piece."""
    found = []
    while (piece := log.after(place, wants)).reached != place:
        found += [each for _, events in piece.commits for each in events]
        place = piece.reached
    return found


def kinds(events):
    return [each.kind for each in events]


def test_a_round_tells_what_was_loaded_and_how_it_ended(node, log):
    place = log.after(None, lambda kind: True).reached
    files = {path_of(n): tsfile("root.sg.d1", first=n * 100, points=7) for n in (1, 2)}
    edge = Edge(node, uuid=A)
    edge.check()
    node.load.make_known(A, f"x_{A}", "plant 7")
    edge.round(files)
    loaded, ended = everything(log, place)
    assert kinds([loaded, ended]) == ["loaded", "round"]
    assert loaded.what["files"] == 2
    assert loaded.what["points"] == 14
    assert loaded.what["bytes"] == sum(map(len, files.values()))
    assert loaded.what["named"] == list(files)
    assert (loaded.what["sender"], loaded.what["label"]) == (A, "plant 7")
    assert loaded.what["first"] == "100"
    assert (ended.what["loaded"], ended.what["tasks"]) == (2, [loaded.what["task"]])
    assert ended.who.uuid == node.engine.uuid
    assert loaded.seconds == pytest.approx(node.engine.times.seconds(int(loaded.what["commit"])))


def test_the_same_commit_gives_the_same_ids_and_others_others(node, log):
    place = log.after(None, lambda kind: True).reached
    Edge(node, uuid=A).round({path_of(1): tsfile("root.sg.d1")})
    Edge(node, uuid=B).round({path_of(1): tsfile("root.sg.d2")})
    first, second = everything(log, place), everything(log, place)
    assert first == second
    ids = [each.id for each in first]
    assert len(set(ids)) == len(ids)
    assert all("." not in each for each in ids), "a full stop would end it in what is signed"
    # Whichever kinds are wanted, an event keeps its id.
    assert everything(log, place, lambda kind: kind == "round") == [
        each for each in first if each.kind == "round"
    ]


def test_a_conflict_is_told_once_with_its_device(node, log):
    Edge(node, uuid=A).round({path_of(1): tsfile("root.sg.d1")})
    place = log.after(None, lambda kind: True).reached
    edge = Edge(node, uuid=B)
    for _ in range(2):
        edge.round({path_of(2): tsfile("root.sg.d1", first=50)})
    (conflict,) = [each for each in everything(log, place) if each.kind == "conflict"]
    (named,) = conflict.what["named"]
    assert (named["path"], named["device"]) == (path_of(2), "root.sg.d1")
    assert conflict.what["sender"] == B


def test_what_is_no_tsfile_is_told_as_quarantined(node, log):
    place = log.after(None, lambda kind: True).reached
    edge = Edge(node)
    edge.check()
    with pytest.raises(NotATsFileError):
        edge.upload(edge.start(), path_of(1), b"x" * 100)
    (told,) = everything(log, place)
    assert told.kind == "quarantined"
    assert told.what["named"][0]["path"] == path_of(1)


@pytest.mark.parametrize("as_sent", [False, True])
def test_a_file_that_was_found_bad_is_told_once_as_that(node, log, as_sent):
    Edge(node).round({path_of(1): tsfile()})
    place = log.after(None, lambda kind: True).reached
    (row,) = list_files(node.operator).files
    with node.engine.reading() as state:
        md5 = state.files[row.physical].md5
    record_verdicts(node.engine, [Verdict(row.physical, md5, "page 3", as_sent=as_sent)])
    (told,) = everything(log, place)
    assert told.kind == "verification_failed"
    assert told.what["named"] == [{"path": path_of(1), "reason": "page 3", "device": ""}]
    assert told.what["sender"] == A


def test_deletes_that_are_held_are_told(node, log):
    place = log.after(None, lambda kind: True).reached
    Edge(node).check()
    held = records.DeletesHeld("d" * 32, A, "root.sg", ("p1", "p2"), False, "too many")
    node.engine.commit([held])
    (told,) = everything(log, place)
    assert (told.kind, told.what["files"]) == ("deletions_held", 2)
    assert told.what["named"][0] == {"path": "root.sg", "reason": "too many", "device": ""}


def test_a_hook_for_what_stands_alone_reads_nothing_of_the_log(node, log, monkeypatch):
    place = log.after(None, lambda kind: True).reached
    Edge(node).round({path_of(1): tsfile()})
    monkeypatch.setattr(node.engine, "log_since", lambda ts: pytest.fail("it was read"))
    piece = log.after(place, lambda kind: kind in ("late", "disk", "lost", "read_only"))
    assert piece.reached.ts == node.engine.newest_commit


def test_many_files_are_counted_and_twenty_are_named(node, log):
    place = log.after(None, lambda kind: True).reached
    Edge(node).round({path_of(n): tsfile(f"root.sg.d{n}") for n in range(1, 31)})
    loaded, _ = everything(log, place)
    assert (loaded.what["files"], len(loaded.what["named"])) == (30, 20)
    assert len(loaded.line()) < 20_000


def test_commits_that_the_history_let_go_of_are_counted(node, log):
    place = log.after(None, lambda kind: True).reached
    for n in range(1, 4):
        Edge(node, uuid=f"{n}" * 32).round({path_of(n): tsfile(f"root.sg.d{n}")})
    with node.engine.reading():
        commits = list(node.engine.window.commits)
        at = commits.index(place.ts)
        node.engine.window.move(commits[at + 3])
    piece = log.after(place, lambda kind: True)
    assert (piece.missing, piece.reached.ts) == (3, commits[at + 3])
    rest = everything(log, piece.reached)
    assert rest
    assert {int(each.what["commit"]) for each in rest} <= set(commits[at + 4 :])


def test_a_history_that_begins_later_without_a_commit_between_lacks_nothing(node, log, world):
    Edge(node).round({path_of(1): tsfile()})
    place = log.after(None, lambda kind: True).reached
    world.clock.now += 10
    Edge(node, uuid=B).round({path_of(1): tsfile("root.sg.d2")})
    with node.engine.reading():
        node.engine.window.move(place.ts + 1)  # between two commits
    piece = log.after(place, lambda kind: True)
    assert piece.missing == 0
    assert [each.kind for each in everything(log, piece.reached)] == ["loaded", "round"]


def test_a_log_that_is_another_one_or_older_is_told_of_from_now_on(node, log, caplog):
    Edge(node).round({path_of(1): tsfile()})
    place = log.after(None, lambda kind: True).reached
    for other in (place.__class__("e" * 32, place.ts, 1), place.__class__(place.log, 1 << 62, 9)):
        piece = log.after(other, lambda kind: True)
        assert piece.reached == place
        assert not piece.commits
    assert "goes on from now" in caplog.text
