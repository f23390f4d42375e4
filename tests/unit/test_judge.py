"""The judge and the workload of the chaos: every broken promise is seen, a kept one is not."""

from __future__ import annotations

import shutil

import pytest

from common.names import FilePath
from common.tsfile import Status, read_tail
from tests.support import judge
from tests.support.workload import Workload

SENDER = "a" * 32


@pytest.fixture
def edge(tmp_path):
    edge = Workload(tmp_path / "edge", "north", seed=5, most=20, pads=(None, 4000))
    for _ in range(80):
        edge.step()
    edge.settle()
    assert all(edge.counts.values()), edge.counts
    return edge


@pytest.fixture
def rows(edge, tmp_path):
    """A receiver that has loaded all of it."""
    rows = []
    for number, (path, written) in enumerate(sorted(edge.files.items())):
        physical = FilePath.parse(path).physical(f"{number:016x}").text
        target = tmp_path / "centre" / physical
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(tmp_path / "edge" / path, target)
        shutil.copy(tmp_path / "edge" / f"{path}.resource", f"{target}.resource")
        rows.append(
            {
                "sender": SENDER, "path": path, "physical": physical, "size": written.size,
                "md5": written.md5, "data_dir": str(tmp_path / "centre"), "state": "live",
                "reason": None, "resource": True,
            }
        )  # fmt: skip
    return rows


def judged(rows, edge, **more):
    return judge.settled(rows, {SENDER: edge}, **more)


def test_the_workload_writes_whole_files_under_good_names(edge, tmp_path):
    for path, written in edge.files.items():
        assert FilePath.parse(path).text == path
        assert (tmp_path / "edge" / path).stat().st_size == written.size
        assert judge.md5_of(tmp_path / "edge" / path) == written.md5
        assert read_tail(tmp_path / "edge" / path).status is Status.COMPLETE
    there = {str(each.relative_to(tmp_path / "edge")) for each in (tmp_path / "edge").rglob("*.*")
             if each.is_file()}  # fmt: skip
    assert there == {*edge.files, *(f"{path}.resource" for path in edge.files)}


def test_the_same_seed_is_the_same_work(tmp_path):
    edges = [
        Workload(tmp_path / str(turn), "north", seed=9, most=20, pads=(None, 4000))
        for turn in range(2)
    ]
    for edge in edges:
        for _ in range(40):
            edge.step()
    assert edges[0].files == edges[1].files


def test_a_perfect_load_is_fine(rows, edge, tmp_path):
    assert judged(rows, edge) == []
    assert judge.strays(rows, tmp_path / "centre", ["live"]) == []
    assert judge.leftovers(tmp_path / "centre") == []


BROKEN = {
    "lost": lambda rows, root: rows.pop(0),
    "loaded 2 times over": lambda rows, root: rows.append(dict(rows[0])),
    "same content was loaded 2 times": lambda rows, root: rows.append(
        {**rows[0], "state": "deleted"}
    ),
    "not deleted": lambda rows, root: rows.append({**rows[0], "path": "sequence/a/0/0/x.tsfile"}),
    "was never at the edge": lambda rows, root: rows[0].update(md5="0" * 32),
    "an older content": lambda rows, root: rows[0].update(size=1),
    "has MD5": lambda rows, root: (root / "centre" / rows[0]["physical"]).write_bytes(b"other"),
    "has MD5 None": lambda rows, root: (root / "centre" / rows[0]["physical"]).unlink(),
    "resource is not the edge's": lambda rows, root: (
        root / "centre" / f"{rows[0]['physical']}.resource"
    ).unlink(),
    "of nobody": lambda rows, root: rows[0].update(sender="b" * 32),
    "retired without reason": lambda rows, root: rows[0].update(state="retired"),
    "quarantined": lambda rows, root: rows[0].update(state="quarantined"),
}


@pytest.mark.parametrize("said", BROKEN)
def test_a_broken_promise_is_seen(rows, edge, tmp_path, said):
    BROKEN[said](rows, tmp_path)
    assert any(said in problem for problem in judged(rows, edge))


def test_a_file_that_is_gone_at_the_edge_may_be_retired_where_that_was_asked_for(rows, edge):
    path = rows[0]["path"]
    del edge.files[path]
    rows[0]["state"] = "retired"
    assert judged(rows, edge, retiring=[SENDER]) == []
    assert judged(rows, edge)


def test_what_is_in_no_row_is_a_stray(rows, tmp_path):
    found = judge.strays(rows[1:], tmp_path / "centre", ["live"])
    assert len(found) == 2
    rows[0]["state"] = "deleted"
    assert len(judge.strays(rows, tmp_path / "centre", ["live"])) == 2
    assert judge.strays(rows, tmp_path / "centre", ["live", "deleted"]) == []


@pytest.mark.parametrize(
    "rel",
    [
        "sync-receiver/x/sync.log",
        "sync-receiver/x/load.log",
        "sync-receiver/x/sync.end",
        "sync-sender/x/sync.log",
        "sync-sender/x/snapshot/sequence/a/0/0/x.tsfile",
        "sync-receiver/x/data/.0123456789abcdef.tmp",
    ],
)
def test_what_a_task_left_lying_about_is_seen(tmp_path, rel):
    (tmp_path / rel).parent.mkdir(parents=True)
    (tmp_path / rel).touch()
    assert judge.leftovers(tmp_path) == [f"{rel}: left over"]
