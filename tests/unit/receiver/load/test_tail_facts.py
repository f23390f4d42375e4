"""What is read of a file as it comes is what a load knows of it, and is not read twice."""

from __future__ import annotations

import msgspec
import pytest

from common import wire
from common.tsfile import read_tail
from common.tsfile.proof import SeriesTable
from common.tsfile.proving import series_proofs
from receiver.load import collecting, tail_facts
from receiver.load.folder.manifests import agrees, contradiction
from receiver.load.tail_facts import TailFacts, facts_of, facts_worth_keeping
from tests.support.node_world import Edge, path_of, tsfile
from tests.support.tsfile_bytes import build
from tests.unit.receiver.load.folder.test_manifests import Lying, proof_of, row_of

CONTENTS = [
    tsfile(),
    tsfile("root.sg.d7", first=-9, points=40),
    build({"root.sg.d1": {"s1": [(1, 2.0)], "s2": [(9, True)]}, "root.sg.d2": {"s1": [(5, 1.0)]}}),
]


@pytest.mark.parametrize("content", CONTENTS)
def test_facts_outlive_their_packing(content):
    facts = facts_worth_keeping(content, read_tail(content), "root.sg")
    assert TailFacts.unpack(facts.pack()).pack() == facts.pack()
    tail = read_tail(content)
    assert msgspec.structs.replace(facts, statistics="") == facts_of(content, tail, "root.sg")


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("sent", CONTENTS)
def test_a_table_agrees_where_nothing_contradicts_it(content, sent):
    tail = read_tail(content)
    facts = facts_worth_keeping(content, tail, "root.sg")
    proof = proof_of(sent)
    found = agrees(proof, facts.statistics, facts.index_bytes)
    assert found == (contradiction(proof, tail) is None) == (content == sent)


def test_a_table_whose_digest_is_another_does_not_agree():
    facts = facts_worth_keeping(CONTENTS[0], read_tail(CONTENTS[0]), "root.sg")
    for lie in (
        proof_of(CONTENTS[0], root="0" * 32),
        proof_of(CONTENTS[0], table=b"no table"),
        proof_of(CONTENTS[0], table=b""),
    ):
        assert not agrees(lie, facts.statistics, facts.index_bytes)
    assert agrees(wire.ProofEntry(root="0" * 32), facts.statistics, facts.index_bytes)


def test_a_blank_table_has_zeros_for_digests_and_all_else():
    table = series_proofs(CONTENTS[0], read_tail(CONTENTS[0]))
    data = table.encode()
    assert SeriesTable.blank(data) == table.without_digests().encode() != data
    for cut in range(len(data)):
        assert len(SeriesTable.blank(data[:cut])) == cut


def test_a_load_does_not_read_again_what_was_read_as_it_came(node, monkeypatch):
    edge = Edge(node)
    task = edge.start()
    edge.plan(task, [])
    edge.batch(task, {path_of(1): tsfile(), path_of(2): tsfile(first=100)})
    monkeypatch.setattr(collecting, "read_tail", None)
    edge.end(task, {path_of(1): tsfile(), path_of(2): tsfile(first=100)})
    assert edge.outcome(task)[path_of(2)].result is wire.Result.LOADED
    row, _ = row_of(node, path_of(2))
    assert (row.first, row.last, row.points) == (100, 104, 5)


def test_of_a_file_with_many_series_nothing_is_kept(node, monkeypatch):
    monkeypatch.setattr(tail_facts, "_MOST_SERIES", 0)
    read = []
    monkeypatch.setattr(
        collecting, "read_tail", lambda *args, **kw: read.append(args) or read_tail(*args, **kw)
    )
    Lying(node).tell(path_of(1), tsfile(), proof_of(tsfile()))
    assert len(read) == 1
