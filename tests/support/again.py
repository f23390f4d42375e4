"""Run alone, once more, what has just failed beside other tests.

    python -m tests.support.again [ARGUMENTS OF PYTEST]

Some tests have real processes, clocks and limits of the machine in them, and thousands run beside
each other: what fails then by a wait that was too short says nothing of the change that is tried.
A fault of the change fails alone as well, and fails the run. What passes alone is named as the
last words of the run: it is a fault of a test, or a race that is rare, to be found either way. Of
more than `MOST` failures none is run again.

Exit status: 0 if all of it passed, else 1.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

__all__ = ["failed_before"]

MOST = 6

_CACHE = Path(".pytest_cache/v/cache/lastfailed")


def failed_before(cache: Path = _CACHE) -> list[str]:
    """The tests that pytest noted as failed in its last run, by their ids."""
    return sorted(json.loads(cache.read_text())) if cache.exists() else []


def main(arguments: list[str]) -> int:
    failed = failed_before()
    if not 0 < len(failed) <= MOST:
        return 1
    print(f"\n{len(failed)} failed beside others and run again alone:", *failed, sep="\n  ")
    if pytest.main([*arguments, *failed]) != pytest.ExitCode.OK:
        return 1
    print("\nUNSTEADY, passed alone (to be found and mended):", *failed, sep="\n  ", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
