"""Starting Spark quietly, on this machine or against a master that somebody else runs."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from common.errors import EXIT_INTERNAL, Transient
from receiver.spark.java import find_java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SparkFailedError", "start"]

_LOGGING = Path(__file__).with_name("log4j2.properties")
_LOCAL = {
    # A job on one machine needs no page and no address that others can reach.
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
_ALWAYS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",
    # Rows are small and many; whoever has millions of files gives the driver memory for them.
    "spark.driver.maxResultSize": "0",
}
_LOCAL_MASTER = re.compile(r"local(?:\[(\*|[0-9]+)\])?\Z")
_FAILURES = 4
"""Of one task in local mode, as in a cluster: a worker that dies is not the end of the job."""


class SparkFailedError(Transient):
    """Spark did not start, or gave a job up: no executor is left, no room, no such master."""

    slug = "spark-failed"
    exit_code = EXIT_INTERNAL

    @classmethod
    def of(cls, error: Exception) -> SparkFailedError:
        """What an error of Spark's libraries says, without the stacks of two languages."""
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        java = [line[2:] for line in lines if line.startswith(": ")]  # as py4j hands it on
        said = (java or lines or [type(error).__name__])[0]
        return cls(f"Spark failed: {said}")


def start(master: str | None, *, name: str = "tsferry-verify") -> SparkSession:
    """A session on `master`, on what `spark-submit` set, or on `local[*]`.

    Args:
        master: a Spark master URL, or None to let the environment decide.
        name: how the job shows on the master's page.

    Raises:
        SparkFailedError: it does not start.
    """
    under_submit = "PYSPARK_GATEWAY_PORT" in os.environ
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if not under_submit:
        os.environ["JAVA_HOME"] = str(find_java_home(os.environ))
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    if master is None and not under_submit:
        master = "local[*]"
    if master is not None:
        builder = builder.master(_with_retries(master))
    settings = dict(_ALWAYS)
    if master is not None and master.startswith("local"):
        settings |= _LOCAL
        # The work is done by Python workers; compiling JVM code well would cost more than it saves.
        settings["spark.driver.extraJavaOptions"] = (
            f"-XX:TieredStopAtLevel=1 -Dlog4j2.configurationFile={_LOGGING.as_uri()}"
        )
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except Exception as error:  # of py4j, of pyspark
        raise SparkFailedError.of(error) from error


def _with_retries(master: str) -> str:
    """Local mode gives up with the first failure of a task, unless the master says otherwise."""
    local = _LOCAL_MASTER.match(master)
    return f"local[{local[1] or 1},{_FAILURES}]" if local else master
