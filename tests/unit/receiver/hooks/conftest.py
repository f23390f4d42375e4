import pytest

from common.hooks.hooks_config import HooksConfig
from tests.support.node_world import World


@pytest.fixture
def out(tmp_path):
    """Where the command of the world keeps what it is told."""
    return tmp_path / "out"


@pytest.fixture
def world(tmp_path, out):
    hook = tmp_path / "hook"
    hook.write_text(f"#!/bin/sh\ncat >> {out}\n")
    hook.chmod(0o755)
    return World(tmp_path / "dc", hooks=HooksConfig(command=(str(hook),)))
