"""One Spark session for all tests of a pytest process: a second JVM costs more than most tests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.architecture import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session that nobody has told of the source: it is found as an installed wheel's would.

    Spark looks for sources in a process of its own, whose path is that of the JVM. So the path is
    set before the JVM is there, and only as long as it starts.
    """
    pytest.importorskip("pyspark")
    pytest.importorskip("numba")
    from receiver.spark.verify.session import start

    beside = tmp_path_factory.mktemp("site")
    shutil.copy(ROOT / "receiver/spark/source/pyspark_tsfile.py", beside)
    paths = [str(beside), str(ROOT), os.environ.get("PYTHONPATH", "")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
        session = start("local[2]", name="tests")
    # Rows are few: each more partition of a shuffle is one more task to start.
    session.conf.set("spark.sql.shuffle.partitions", "2")
    yield session
    session.stop()
