"""Work is unpacked only where it can be done, and what a worker lacks has a name."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("numba")

from pyspark import cloudpickle

from common import __version__
from receiver.spark.verify.session import SparkFailedError
from receiver.spark.verify.worker_code import shipped, unfit

SITE = str(Path(pytest.__file__).parent.parent)


class Doubles:
    """Stands for the work: twice what comes in, and what it was made with."""

    def __init__(self, shared: Any, *rest: Any) -> None:
        self._made = (shared, *rest)

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        yield self._made
        for each in batches:
            yield each * 2


def test_work_arrives_with_what_it_was_made_of() -> None:
    run: Callable[..., Any] = pickle.loads(cloudpickle.dumps(shipped(Doubles, "shared", 1, "x")))
    assert list(run(iter([1, 2]))) == [("shared", 1, "x"), 2, 4]


def failing(*path: Path) -> str:
    """What a worker says that has the packages of `path`, and those of the tests, but not ours."""
    sent = cloudpickle.dumps(shipped(Doubles, None))
    program = (
        "import pickle, sys\n"
        f"sys.path[:0] = {[str(each) for each in path]!r}\n"
        f"sys.path.append({SITE!r})\n"
        "try:\n    list(pickle.loads(sys.stdin.buffer.read())(iter([])))\n"
        "except RuntimeError as error:\n    print(f'RuntimeError: {error}')\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program],
        input=sent, capture_output=True, check=True, timeout=60,
    )  # fmt: skip
    return done.stdout.decode()


def test_a_worker_without_the_package_or_with_another_version_is_named(tmp_path: Path) -> None:
    said = SparkFailedError.of(Exception(f"An exception was thrown\nTraceback x\n{failing()}"))
    assert said.message.startswith(f"a worker cannot do the work: {sys.executable} on ")
    assert said.message.endswith(
        f": No module named 'common'; every worker needs tsferry[spark] {__version__}"
    )
    (tmp_path / "common").mkdir()
    (tmp_path / "common/__init__.py").write_text("__version__ = '0.0.1'\n")
    text = failing(tmp_path)
    assert f" has tsferry 0.0.1; every worker needs tsferry[spark] {__version__}" in text
    assert unfit(Exception(text))
    assert unfit(Exception("RuntimeError: of somebody else")) is None
