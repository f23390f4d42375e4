"""The logs that real servers wrote, region by region, at a real centre."""

from __future__ import annotations

import shutil

import pytest

from tests.support.architecture import ROOT
from tests.support.schemas import position, schema_of

REAL = ROOT / "tests/data/iotdb-regions"


@pytest.mark.few(1)
@pytest.mark.parametrize("version", ["1.0.1", "2.0.1-beta"])
def test_the_schema_of_a_real_server_arrives(centre, make_edge, version):
    edge = make_edge(centre.start())
    shutil.copytree(REAL / version, edge.schema, dirs_exist_ok=True)
    report = edge.round()
    assert (report.exit_code, report.schema.problem) == (0, None)
    found = schema_of(centre, "root.plant") | schema_of(centre, "root.farm")
    assert found["root.plant.d0.s2"] == {
        "type": 2,
        "alias": "temperature",
        "tags": {"unit": "f", "place": "hall"},
    }
    assert found["root.plant.d0.s3"]["alias"] == "words"
    assert found["root.plant.d0.s1"]["tags"] == {"fresh": "yes"}
    assert "root.plant.`a.b`.`c,d`" in found
    assert {"root.farm.al.x", "root.farm.al.y", "root.plant.a1.x"} <= set(found)
    there = position(centre, edge.uuid)
    assert there is not None
    failed = {each["record"]: each["reason"] for each in there["failed"]}
    if version == "1.0.1":
        assert found["root.farm"]["ttl"] == 86_400_000
        assert failed == {}
    else:
        assert "root.plant.gone.s1" not in found
        assert "root.plant.d1.s1" not in found
        assert "root.plant.d2.long" in found
        assert [*failed] == [
            "schema templates, not read of root.plant/0/mlog.bin",
            "root.plant.d2.long",  # more tags than the centre is told to take
        ]
    assert edge.round().quiet
