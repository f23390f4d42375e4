"""docs/ranks.md, held by real servers: their files, merged by rank, are their own rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.live.merged import Points, by_kind, by_version, closed, rows_of, series_of
from tests.live.recording import STAGES, record
from tests.live.server import Server, versions

pytestmark = pytest.mark.timeout(900)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    servers = metafunc.config.getoption("servers")
    if servers is None:
        raise pytest.UsageError("tests/live wants --servers DIR: see scripts/live")
    found = versions(servers)
    metafunc.parametrize("played", found, indirect=True, scope="module")


@pytest.fixture(scope="module")
def played(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    """A version, and what was recorded of it."""
    version = request.param
    place = tmp_path_factory.mktemp("server")
    record(Server(request.config.getoption("servers") / version, place / "run"), place / "out")
    return version, place / "out"


def _answered(stage: Path) -> dict[str, Points]:
    series = json.loads((stage / "rows.json").read_text())["series"]
    return {
        path: dict(map(tuple, found["points"])) for path, found in series.items() if found["points"]
    }


def _floor(stage: Path) -> int | None:
    floor: int | None = json.loads((stage / "rows.json").read_text())["floor"]
    return floor


def _stages(out: Path) -> list[Path]:
    return [
        each / stage for each in sorted(out.iterdir()) for stage in STAGES if each.name != "tables"
    ]


def test_the_files_by_rank_are_the_servers_own_rows(played: tuple[str, Path]) -> None:
    version, out = played
    rank = by_kind if version.startswith("2.") else by_version
    for stage in _stages(out):
        assert series_of(stage, rank, _floor(stage)) == _answered(stage), stage


def test_only_a_file_opened_before_tells_the_ranks_apart(played: tuple[str, Path]) -> None:
    _, out = played
    differ = {
        stage.parent.name
        for stage in _stages(out)
        if series_of(stage, by_kind) != series_of(stage, by_version)
    }
    assert differ == {"openedbefore"}


def test_rows_of_tables_are_cells_by_rank(played: tuple[str, Path]) -> None:
    _, out = played
    for stage in STAGES if (out / "tables").exists() else ():
        facts = json.loads((out / "tables" / stage / "rows.json").read_text())
        answered: dict[tuple[str, int], tuple[Any, Any]] = {
            (row["tag1"], row["time"]): (row["m1"], row["m2"]) for row in facts["rows"]
        }
        merged = {
            (device[1], at): (row.get("m1"), row.get("m2"))
            for device, rows in rows_of(out / "tables" / stage, by_kind).items()
            for at, row in rows.items()
        }
        assert merged == answered, stage


def test_products_are_named_as_the_page_says(played: tuple[str, Path]) -> None:
    version, out = played
    before = closed(out / "updates" / "written")
    after = closed(out / "updates" / "inner")
    left = {name.path.name for name in after}
    for unsequence in (False, True):
        sources = [
            name.version
            for name in before
            if name.unsequence == unsequence and name.path.name not in left
        ]
        (product,) = [name for name in after if name.inner and name.unsequence == unsequence]
        highest = unsequence and version.startswith("1.0")
        assert product.version == (max(sources) if highest else min(sources))
    crossed = [name for name in closed(out / "updates" / "cross") if name.cross]
    assert crossed
    assert not any(name.unsequence for name in crossed)
