"""An engine that makes no storage group by itself, and one that does."""

import pytest

from receiver.metadata.engine import Engine
from receiver.metadata.model.engine_options import EngineOptions


@pytest.fixture
def home(tmp_path):
    return tmp_path / "schema"


@pytest.fixture
def engine(home):
    with Engine.open(home, options=EngineOptions(auto_create=False)) as engine:
        yield engine


@pytest.fixture
def making(tmp_path):
    """An engine that makes the storage group of a series that has none, at level 1."""
    options = EngineOptions(storage_group_level=1)
    with Engine.open(tmp_path / "making", options=options) as engine:
        yield engine
