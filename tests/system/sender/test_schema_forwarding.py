"""A centre that forwards its schema to a higher centre: A -> B -> C."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support import warm
from tests.support.schemas import SchemaLog, position, schema_of
from tests.system.sender import test_forwarding

RECEIVER = str(Path(sys.executable).with_name("tsferry-receiver"))

chain = test_forwarding.chain


def test_what_a_schema_says_reaches_the_higher_centre(chain):
    edge, lower, forwarder, upper = chain
    log = SchemaLog(edge.schema)
    log.write("2,root.a", "10,root.a,86400000")
    log.series("root.a.d1.s1", 2, alias="temperature", tags={"unit": "c"})
    log.series("root.a.d,2.s1")
    edge.write(1)
    assert edge.round().exit_code == 0
    report = forwarder.round()
    assert (report.exit_code, report.sent) == (0, 1), report.as_json()
    below = schema_of(lower, "root.a")
    assert schema_of(upper, "root.a") == below
    assert below["root.a.d1.s1"] == {"type": 2, "alias": "temperature", "tags": {"unit": "c"}}
    assert forwarder.round().quiet


def test_changes_travel_and_nothing_else(chain):
    edge, lower, forwarder, upper = chain
    log = SchemaLog(edge.schema)
    log.write("2,root.a")
    for number in range(30):
        log.series(f"root.a.d1.s{number}", tags={"n": str(number)})
    edge.round()
    forwarder.round()
    whole = position(upper, forwarder.uuid)["applied"]
    log.write("1,root.a.d1.s3", "13,root.a.d1.s4,four")
    log.slot({"n": "changed"}, at=5 * 700)
    log.series("root.a.d1.new")
    edge.round()
    sql(lower, "create timeseries root.a.d1.byhand with datatype=INT32, encoding=PLAIN")
    report = forwarder.round()
    assert report.schema.whole is None
    assert position(upper, forwarder.uuid)["applied"] - whole < 10
    found = schema_of(upper, "root.a")
    assert found == schema_of(lower, "root.a")
    assert "root.a.d1.s3" not in found
    assert found["root.a.d1.s5"]["tags"] == {"n": "changed"}
    assert "root.a.d1.byhand" in found
    assert forwarder.round().quiet


def test_a_series_that_gave_way_to_another_type_does_so_above(chain):
    edge, lower, forwarder, upper = chain
    log = SchemaLog(edge.schema)
    log.write("2,root.a")
    log.series("root.a.d1.s1", 1)
    edge.round()
    forwarder.round()
    log.write("1,root.a.d1.s1")
    log.series("root.a.d1.s1", 3)
    edge.round()
    forwarder.round()
    assert schema_of(upper, "root.a")["root.a.d1.s1"]["type"] == 3
    assert schema_of(lower, "root.a")["root.a.d1.s1"]["type"] == 3


def test_files_alone_bring_the_position_on(chain):
    edge, lower, forwarder, upper = chain
    edge.write(1)
    edge.round()
    forwarder.round()
    before = position(upper, forwarder.uuid)
    edge.write(2)  # the same series
    edge.round()
    report = forwarder.round()
    assert (report.sent, report.schema.bytes, report.schema.problem) == (1, 0, None)
    after = position(upper, forwarder.uuid)
    assert after["offset"] > before["offset"]
    assert after["applied"] == before["applied"]
    sql(lower, "set storage group to root.elsewhere")
    sql(lower, "delete storage group root.elsewhere")
    assert forwarder.round().quiet or forwarder.round().quiet  # no task for nothing


def test_one_that_was_behind_a_checkpoint_gets_what_it_needs(chain):
    edge, lower, forwarder, upper = chain
    log = SchemaLog(edge.schema)
    log.write("2,root.a")
    for number in range(20):
        log.series(f"root.a.d1.s{number}", 2, alias=f"n{number}", tags={"n": str(number)})
    edge.round()
    forwarder.round()
    for turn in range(3):  # above is behind while checkpoints come and go
        log.write(f"1,root.a.d1.s{turn}", f"13,root.a.d1.s{turn + 10},other{turn}")
        log.series(f"root.a.d2.t{turn}", tags={"turn": str(turn)})
        edge.round()
        sql(lower, "create snapshot for schema")
    lower.kill()
    lower.start()
    report = forwarder.round()
    assert report.exit_code == 0, report.as_json()
    assert report.schema.whole is None
    assert schema_of(upper, "root.a") == schema_of(lower, "root.a")


def sql(centre, statement: str) -> None:
    done = warm.run([RECEIVER, "--config", str(centre.config), "sql", statement])
    assert done.returncode == 0, done.stderr
