"""A file that contradicts the schema, from the edge to the operator's decision."""

from __future__ import annotations

import json
from typing import Any

from tests.support.centre import Centre
from tests.support.edge import Edge
from tests.support.schemas import SchemaLog
from tests.support.tsfile_bytes import build
from tests.system.sender.test_rounds import call


def test_the_operator_decides_about_a_file_of_another_type(centre: Centre, make_edge: Any) -> None:
    edge: Edge = make_edge(centre.start())
    good = edge.write(1)
    assert edge.round().sent == 1
    other = edge.path(2)
    edge.put(other, build({f"{edge.sg}.d1": {"s1": [(9000, "text")]}}))
    third = edge.write(3)
    report = edge.round()
    assert (report.sent, report.exit_code) == (1, 3)
    reason = f"series {edge.sg}.d1.s1 is INT64 in the schema, TEXT in the file"
    assert [(each.file, each.reason) for each in report.quarantined] == [(other, reason)]
    assert edge.round().bytes == 0  # it waits for somebody
    (entry,) = centre.call("quarantine", "list")["entries"]
    assert (entry["reason"], entry["hold"]) == (reason, True)

    centre.sql(f"delete timeseries {edge.sg}.d1.s1")
    centre.call("quarantine", "retry", "--all")
    assert call(edge.write_config(), "quarantine", "retry", other).returncode == 0
    report = edge.round()
    assert (report.sent, report.exit_code) == (1, 0)
    assert sorted(centre.loaded(edge.uuid)) == sorted([good, other, third])
    assert centre.call("quarantine", "list")["entries"] == []
    shown = centre.sql(f"show timeseries {edge.sg}.d1.s1")
    assert json.loads(shown.splitlines()[0])["dataType"] == "TEXT"


def test_where_loads_make_no_series_their_files_wait_for_the_schema(
    centre: Centre, make_edge: Any
) -> None:
    env = {"TSFERRY_RECEIVER_METADATA__AUTO_CREATE_SCHEMA": "false"}
    edge: Edge = make_edge(centre.start(env=env))
    log = SchemaLog(edge.schema)
    log.write(f"2,{edge.sg}")
    log.series(f"{edge.sg}.d1.s1", 2)
    known = edge.write(1)
    unknown = edge.write(2, device=f"{edge.sg}.d2")
    report = edge.round()  # the log goes before the files, in the same commit
    assert (report.sent, report.exit_code) == (1, 3)
    assert [each.file for each in report.quarantined] == [unknown]
    assert f"{edge.sg}.d2.s1 is not in the schema" in report.quarantined[0].reason
    assert sorted(centre.loaded(edge.uuid)) == [known]
    assert centre.sql(f"show devices {edge.sg}.d2").strip() == ""
    log.series(f"{edge.sg}.d2.s1", 2)
    edge.round()
    centre.call("quarantine", "retry", "--all")
    assert call(edge.write_config(), "quarantine", "retry", unknown).returncode == 0
    report = edge.round()
    assert (report.sent, report.exit_code) == (1, 0)
    assert sorted(centre.loaded(edge.uuid)) == sorted([known, unknown])
