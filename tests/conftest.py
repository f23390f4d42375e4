"""What every test gets."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _no_log_left_behind() -> Iterator[None]:
    """A command that ran in this process has set up its log, on a stream of the test."""
    root = logging.getLogger()
    level, before = root.level, root.handlers[:]
    yield
    for each in root.handlers[:]:
        if each not in before and each.__class__.__module__.startswith("logging"):
            root.removeHandler(each)
            each.close()
    root.setLevel(level)
