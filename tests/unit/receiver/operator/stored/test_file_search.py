"""Searches against what looking at every file would find."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.errors import UsageError
from receiver.metadata.state.table_rows import AdoptionRow
from receiver.operator.stored import file_search
from receiver.operator.stored.file_search import SEARCHED_STATES, FileSearch, search_files
from tests.support import tiers
from tests.support.node_world import A, B, Edge, World, path_of, tsfile


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with World(tmp_path_factory.mktemp("search"), keep_deleted=1e6).node() as node:
        a, b = Edge(node, uuid=A), Edge(node, uuid=B)
        files = {
            path_of(n, sg=sg, partition=p): tsfile(f"{sg}.d{n % 3}", first=n * 100)
            for n, (sg, p) in enumerate(
                [(sg, p) for sg in ("root.a", "root.a.b", "root.b") for p in (0, 1, 10)] * 3
            )
        }
        late = {
            path_of(n, sg="root.a").replace("sequence", "unsequence"): tsfile("root.a.d0", first=n)
            for n in (90, 91)
        }
        a.round(files | late)
        b.round({path_of(n, sg="root.c"): tsfile("root.c.d", first=n) for n in range(5)})
        a.round({}, list(files)[::4])
        with node.engine.reading() as state:  # what B has was adopted
            task = next(row.task for row in state.files.values() if row.sender == B)
            adopted = AdoptionRow(sender=B, task=task, source="/old", created=1, changed=1)
            state.adoption_table.restore(adopted)
        yield node


def every(node, search):
    found, after = [], None
    for _ in range(200):
        page = search_files(node.operator, changed(search, after=after))
        found += page.files
        assert len(page.files) <= search.count
        if page.next is None:
            return found
        assert after is None or page.next > after
        after = page.next
    raise AssertionError("it does not end")


def changed(search, **changes):
    return FileSearch(**{**vars(search), **changes})


def plain(node, search):
    with node.engine.reading() as state:
        rows = list(state.files.values())
    prefix = search.prefix.removesuffix(".tsfile").removeprefix("/")
    return {
        row.physical
        for row in rows
        if any(
            row.physical.startswith(f"{kind}{prefix}") for kind in ("", "sequence/", "unsequence/")
        )
        and search.wants(row)
        and (search.state != "adopted" or row.sender == B)
    }


PREFIXES = (
    "", "seq", "sequence", "sequence/", "unsequence", "unsequence/root.a", "root", "root.a",
    "root.a/", "root.a/0/1", "root.a/0/1/", "root.b/0/10/", "x", "/root.c",
    path_of(3, sg="root.c"), "\U0010ffff",
)  # fmt: skip


@given(
    prefix=st.sampled_from(PREFIXES),
    state=st.sampled_from(SEARCHED_STATES),
    sender=st.sampled_from([None, A, B]),
    begin=st.sampled_from([None, 0, 500, 1300]),
    end=st.sampled_from([None, 0, 500, 1300]),
    count=st.sampled_from([1, 3, 50]),
    most=st.sampled_from([2, 7, 20_000]),
    step=st.sampled_from([1, 4, 500]),
)
@settings(max_examples=tiers.examples(150))
def test_a_search_finds_what_there_is_once(
    node, prefix, state, sender, begin, end, count, most, step
):
    search = FileSearch(
        prefix=prefix, state=state, sender=sender, begin=begin, end=end, count=count
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(file_search, "_MOST", most)
        patched.setattr(file_search, "_STEP", step)
        found = [each.physical for each in every(node, search)]
    assert len(found) == len(set(found))
    assert set(found) == plain(node, search)


@pytest.mark.parametrize("prefix", PREFIXES)
def test_the_past_is_searched_as_now_is(node, prefix):
    now = str(node.engine.newest_commit)
    search = FileSearch(prefix=prefix, count=3)
    visible = [each.physical for each in every(node, search)]
    past = [each.physical for each in every(node, changed(search, at=now))]
    assert past == visible


def test_a_page_looks_at_so_many_files_and_says_so(node, monkeypatch):
    monkeypatch.setattr(file_search, "_MOST", 5)
    page = search_files(node.operator, FileSearch(begin=10**9))
    assert (page.files, page.looked_at) == ([], 5)
    assert page.next is not None


def test_how_a_path_begins_is_found_without_looking_at_others(node):
    page = search_files(node.operator, FileSearch(prefix=path_of(2, sg="root.c")))
    assert (len(page.files), page.looked_at) == (1, 1)


def test_a_state_that_there_is_not_is_refused(node):
    with pytest.raises(UsageError, match="expected one of visible"):
        search_files(node.operator, FileSearch(state="odd"))
