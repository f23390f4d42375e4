import pytest

from receiver.metadata.model import records
from receiver.operator import commit_history
from receiver.operator.commit_history import list_commits
from receiver.operator.edges.tokens import make_token
from tests.support.node_world import A, Edge, World, path_of, tsfile


@pytest.fixture
def engine(tmp_path):
    with World(tmp_path).node() as node:
        Edge(node, uuid=A).round({path_of(n): tsfile("root.sg.d1", first=n) for n in (1, 2, 3)})
        for number in range(37):
            make_token(node.engine, "reader", note=str(number))
        yield node.engine


def pages(engine, **more):
    found, before = [], None
    for _ in range(100):
        page = list_commits(engine, before=before, **more)
        found.append([each.ts for each in page.commits])
        before = page.next
        if before is None:
            return found
    raise AssertionError("it does not end")


@pytest.mark.parametrize("count", [1, 7, 10, 50])
def test_pages_have_every_commit_once_the_newest_first(engine, count):
    every = [commit.ts for commit in engine.log_since(engine.oldest_answerable)]
    found = pages(engine, count=count)
    assert [ts for page in found for ts in page] == every[::-1]
    assert all(len(page) <= count for page in found)


def test_a_commit_says_what_it_did(engine):
    lines = list_commits(engine, count=200).commits
    loaded = next(each for each in lines if ("file loaded", 3) in each.did)
    assert loaded.operations >= 3
    assert len(loaded.named) <= 3
    assert any("sequence/root.sg/0/0/" in each for each in loaded.named)


def test_large_commits_make_a_page_shorter(engine, monkeypatch):
    monkeypatch.setattr(commit_history, "_MOST", 10)
    ops = [records.SenderSeen(f"{n:032x}", "", f"x_{n:032x}") for n in range(20)]
    engine.commit(ops)
    first = list_commits(engine)
    assert len(first.commits) <= 10
    assert first.next is not None
    every = [commit.ts for commit in engine.log_since(engine.oldest_answerable)]
    assert [ts for page in pages(engine) for ts in page] == every[::-1]


def test_what_is_before_the_kept_history_is_not_told(engine):
    with engine.reading():
        oldest = engine.window.commits[-5]
        engine.window.move(oldest)
    assert [each.ts > oldest for each in list_commits(engine).commits] == [True] * 4
    assert list_commits(engine, before=oldest).commits == []
