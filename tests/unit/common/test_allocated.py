"""What was freed between things that stay goes back to the system when it is told so."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from common.allocated import give_back


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif("glibc" not in str(os.confstr("CS_GNU_LIBC_VERSION")), reason="of glibc")
def test_what_was_freed_between_things_that_stay_goes_back():
    every = [bytes(100_000) for _ in range(600)]
    kept = every[::10]
    every.clear()
    before = resident()
    give_back()
    assert before - resident() > 30_000_000
    assert len(kept) == 60
