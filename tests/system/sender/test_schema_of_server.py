"""The schema of a running database reaches the centre; a server that fails keeps no file back."""

from __future__ import annotations

import json

from common.config import Secret
from sender.config import SchemaConfig
from tests.support.fake_database import fake_database
from tests.support.schemas import position, schema_of


def test_what_a_database_says_is_at_the_centre_and_follows_it(shared, make_edge):
    edge = make_edge(shared.url)
    with fake_database() as database:
        edge.with_settings(schema=SchemaConfig(server=database.url, every=0.0))
        (edge.schema / "mlog.txt").write_text("2,root.of.a.log\n")  # the server takes its place
        database.databases = {edge.sg: 86_400_000}
        database.make(f"{edge.sg}.d1.s1", "INT64", alias="first", tags={"unit": "k"})
        database.make(f"{edge.sg}.d2.s1")
        database.make(f"{edge.sg}.d2.s2")
        edge.write(1)
        report = edge.round()
        assert (report.exit_code, report.sent, report.schema.problem) == (0, 1, None)
        found = schema_of(shared, edge.sg)
        assert found[edge.sg]["ttl"] == 86_400_000
        assert found[f"{edge.sg}.d1.s1"] == {"type": 2, "alias": "first", "tags": {"unit": "k"}}
        assert f"{edge.sg}.d2.s2" in found
        assert edge.round().quiet
        del database.series[f"{edge.sg}.d2.s2"]
        database.make(f"{edge.sg}.d2.s1", tags={"new": "yes"})
        report = edge.round()
        assert report.schema.whole is None
        assert f"{edge.sg}.d2.s2" in schema_of(shared, edge.sg)
        edge.round()  # it is gone for the second time
        found = schema_of(shared, edge.sg)
        assert f"{edge.sg}.d2.s2" not in found
        assert found[f"{edge.sg}.d2.s1"]["tags"] == {"new": "yes"}
        assert edge.round().quiet
        there = position(shared, edge.uuid)
        assert there is not None
        assert there["unapplied"] == 0
        assert schema_of(shared, "root.of") == {}
        report = edge.round(forget=True, schema=True)
        assert report.schema.whole == "as the operator wants it"
        assert edge.round().resources == 1  # a list that was made anew asks for them once
        assert edge.round().quiet


def test_a_server_that_fails_keeps_no_file_back_and_is_named(shared, make_edge):
    edge = make_edge(shared.url)
    with fake_database() as database:
        config = SchemaConfig(server=database.url, password=Secret("wrong"), every=0.0)
        edge.with_settings(schema=config)
        edge.write(1)
        report = edge.round()
        assert (report.exit_code, report.sent) == (0, 1)
        assert "password" in (report.schema.problem or "")
        database.password = "wrong"
        database.databases = {edge.sg: None}
        database.make(f"{edge.sg}.d2.s1")
        report = edge.round()
        assert report.schema.problem is None
    edge.write(2)
    report = edge.round()
    assert (report.exit_code, report.sent) == (0, 1)
    assert "does not answer" in (report.schema.problem or "")
    assert "wrong" not in json.dumps(report.as_json())
