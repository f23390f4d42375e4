"""A catalogue that nothing was committed to is read once; what has changed is seen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from common.errors import UsageError
from receiver.metadata.model import records
from receiver.spark import local_catalogue
from receiver.spark.source import inferring
from receiver.spark.source.inferring import list_sources
from receiver.spark.source.kept_catalogue import KeptCatalogue
from receiver.spark.source.read_plans.source_options import parse_options
from tests.support.spark_world import NORTH, World
from tests.support.tsfile_bytes import build

PATH = "sequence/root.wind/0/0/{n}-{n}-0-0.tsfile"


def content(n: int) -> bytes:
    return build({"root.wind.d": {"s": [(n, n)]}})


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    made.load(NORTH, PATH.format(n=1), content(1))
    yield made
    made.engine.close()


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[KeptCatalogue]:
    made = KeptCatalogue()
    monkeypatch.setattr(inferring, "of_planner", made)
    yield made
    made.close()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The engines that were read."""
    seen: list[Path] = []
    read = local_catalogue.Engine.read_only

    def counted(path: Path, **options: Any) -> local_catalogue.Engine:
        seen.append(path)
        return read(path, **options)

    monkeypatch.setattr(local_catalogue.Engine, "read_only", counted)
    return seen


@pytest.mark.parametrize("where", ["config", "schema"])
def test_it_is_read_again_only_when_something_was_committed(
    world: World, kept: KeptCatalogue, opened: list[Path], where: str
) -> None:
    path = world.config if where == "config" else world.root / where
    options = parse_options({"catalog": str(path)})
    first = list_sources(options)
    assert [each.name for each in list_sources(options)] == [each.name for each in first]
    assert list_sources(options)[0] is first[0]
    assert len(opened) == 1
    world.load(NORTH, PATH.format(n=2), content(2))
    assert len(list_sources(options)) == 2
    world.engine.commit([records.FileDeleted(first[0].name, "gone")])
    assert [each.name for each in list_sources(options)] != [first[0].name]
    assert len(opened) == 3


def test_a_past_commit_is_another_question_to_the_same(
    world: World, kept: KeptCatalogue, opened: list[Path]
) -> None:
    at = world.engine.newest_commit
    world.load(NORTH, PATH.format(n=2), content(2))
    options = parse_options({"catalog": str(world.config)})
    past = parse_options({"catalog": str(world.config), "asOf": str(at)})
    assert [len(list_sources(each)) for each in (options, past, options, past)] == [2, 1, 2, 1]
    assert len(opened) == 1


def test_what_it_is_made_by_counts(world: World, kept: KeptCatalogue, opened: list[Path]) -> None:
    options = parse_options({"catalog": str(world.config)})
    (file,) = list_sources(options)
    (other,) = list_sources(replace(options, data_dirs=("/mnt/data",)))
    assert other.locations != file.locations
    world.config.write_text('schema_dir = "schema"\ndata_dirs = ["elsewhere"]\n')
    (moved,) = list_sources(options)
    assert moved.locations == (f"{world.root}/elsewhere/{file.name}",)
    assert len(opened) == 3


def test_after_an_error_it_begins_anew(
    world: World, kept: KeptCatalogue, opened: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = parse_options({"catalog": str(world.config)})
    list_sources(options)
    with pytest.raises(UsageError):
        list_sources(replace(options, catalog=str(world.root / "nowhere")))
    assert len(list_sources(options)) == 1
    assert len(opened) == 2
    with monkeypatch.context() as patch:
        patch.setattr(local_catalogue.LocalCatalogue, "stand_ins", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            list_sources(options)
    assert len(list_sources(options)) == 1
    assert len(opened) == 3
