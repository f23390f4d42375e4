"""A file that contradicts the schema, from the edge to the operator's decision."""

from __future__ import annotations

import json
from typing import Any

from tests.support.centre import Centre
from tests.support.edge import Edge
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
