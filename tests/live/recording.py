"""Plays all scenarios on a server, and keeps its files and its own answer after each stage."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.live.scenarios import WEEK, Scenario, scenarios
from tests.live.server import COMPACTION_DELAY, Server, versions

STAGES = ("written", "inner", "more", "cross")
"""Closed files as written; after compactions within a kind; after more writes; across kinds."""
LONG_AFTER = 1_000_000


def parsed(kind: str | None, text: str) -> Any:
    if kind == "BOOLEAN":
        return text.lower() == "true"
    if kind in ("INT32", "INT64", "TIMESTAMP"):
        return int(text)
    return float(text) if kind in ("FLOAT", "DOUBLE") else text


def answer(server: Server, scenario: Scenario) -> dict[str, Any]:
    """`rows.json`: what the server itself gives, of all series of the database.

    Of a tree: `{"series": {path: {"type": ..., "points": [[time, value], ...]}}}`, without nulls.
    Of tables: `{"rows": [{column: value or null, ...}, ...]}`, in the order of tag and time.
    """
    if scenario.table:
        return _table_answer(server)
    every = f"* from {scenario.group}.*" if not server.kind.aligned else f"** from {scenario.group}"
    # One of 1.0 that stands alone answers only what has a begin and an end.
    first = scenario.between // WEEK * WEEK
    found = server.say(f"select {every} where time >= {first} and time < {first + WEEK}")
    columns, kinds = found["columns"][1:], found["types"]
    series: dict[str, Any] = {}
    for place, name in enumerate(columns):
        points = [
            [row[0], parsed(kinds[place], row[place + 1])]
            for row in found["rows"]
            if row[place + 1] is not None
        ]
        series[name] = {"type": kinds[place], "points": points}
    return {"series": series}


def _table_answer(server: Server) -> dict[str, Any]:
    found = server.say("select * from tables.t1 order by tag1, time", table=True)
    kinds = found["types"]
    return {
        "rows": [
            {
                column: None if row[place + 1] is None else parsed(kinds[place], row[place + 1])
                for place, column in enumerate(found["columns"])
            }
            for row in found["rows"]
        ]
    }


def _play(server: Server, scenario: Scenario, statements: Sequence[str]) -> None:
    for each in statements:
        server.say(each, table=scenario.table)


def _keep(server: Server, played: Sequence[Scenario], out: Path, stage: str) -> None:
    for each in played:
        target = out / each.name / stage
        target.mkdir(parents=True)
        server.copy(each.group, target)
        floor = each.ttl_below if stage in ("more", "cross") else None
        facts = {"scenario": each.name, "stage": stage, "floor": floor, **answer(server, each)}
        (target / "rows.json").write_text(json.dumps(facts, indent=1))


def record(server: Server, out: Path, names: Sequence[str] = ()) -> list[Scenario]:
    """`<out>/<scenario>/<stage>/{sequence,unsequence,rows.json}`."""
    kind = server.kind
    played = [each for each in scenarios(kind) if not names or each.name in names]
    with server.running(kind.quiet):
        for each in played:
            server.say(
                f"{kind.groups} {each.group}"
                if not each.table
                else f"create database {each.group}",
                table=each.table,
            )
            _play(server, each, each.first)
        server.quiet()
        _keep(server, played, out, "written")
    with server.running(kind.inner):
        _compact(server, played, last=False)
        _keep(server, played, out, "inner")
    with server.running(kind.quiet):
        for each in played:
            _play(server, each, each.second)
        server.quiet()
        _keep(server, played, out, "more")
    with server.running(kind.cross):
        _compact(server, played, last=True)
        _keep(server, played, out, "cross")
    return played


def _compact(server: Server, played: Sequence[Scenario], *, last: bool) -> None:
    for each in played if last else ():
        _play(server, each, each.again)
    if server.version.startswith("0.12"):
        for each in played:
            _play(server, each, each.knock(each.between + (LONG_AFTER if last else 0)))
    else:
        time.sleep(COMPACTION_DELAY)
    server.quiet(8, 120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("servers", type=Path, help="as `scripts/live fetch` makes it")
    parser.add_argument("out", type=Path, help="gets <version>/<scenario>/<stage>/")
    parser.add_argument("--version", action="append", help="not all, but this one")
    parser.add_argument("--scenario", action="append", default=[], help="not all, but this one")
    chosen = parser.parse_args()
    for version in chosen.version or versions(chosen.servers):
        with tempfile.TemporaryDirectory() as run:
            server = Server(chosen.servers / version, Path(run))
            for each in record(server, chosen.out / version, chosen.scenario):
                print(f"{version} {each.name}")


if __name__ == "__main__":
    main()
