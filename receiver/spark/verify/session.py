"""Starting Spark quietly, on this machine or against a master that somebody else runs."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from common.errors import EXIT_INTERNAL, ConfigError, Transient
from common.system_errors import user_name
from receiver.spark.verify.java import find_java_home
from receiver.spark.verify.worker_code import unfit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

__all__ = ["SparkFailedError", "start", "was_interrupted"]

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
_RAISED = re.compile(r"^[A-Za-z_][\w.]*: .*$", re.MULTILINE)
"""The last line of a traceback: what was raised."""
_FAILURES = 4
"""Of one task in local mode, as in a cluster: a worker that dies is not the end of the job."""


class SparkFailedError(Transient):
    """Spark did not start, or gave a job up: no executor is left, no room, no such master."""

    slug = "spark-failed"
    exit_code = EXIT_INTERNAL

    @classmethod
    def of(cls, error: Exception) -> SparkFailedError:
        """What an error of Spark's libraries says, without the stacks of two languages."""
        if lack := unfit(error):
            return cls(f"a worker cannot do the work: {lack}")
        text = str(error)
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        java = [line[2:] for line in lines if line.startswith(": ")]  # as py4j hands it on
        python = _RAISED.findall(text.partition("Traceback (most recent call last):")[2])
        said = (java or python[-1:] or lines or [type(error).__name__])[0]
        return cls(f"Spark failed: {said}")


def was_interrupted(error: BaseException) -> bool:
    """Whether an error of Spark's is what Ctrl-C came to.

    PySpark cancels the jobs and raises `KeyboardInterrupt`; while that is on its way up, the result
    of the job is asked for, and the error that it was cancelled takes its place.
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, KeyboardInterrupt):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def start(master: str | None, *, name: str = "tsferry-verify") -> SparkSession:
    """A session on `master`, on what `spark-submit` set, or on `local[*]`.

    Args:
        master: a Spark master URL, or None to let the environment decide.
        name: how the job shows on the master's page.

    Raises:
        ConfigError: the user of this process has no name.
        SparkFailedError: it does not start.
    """
    _require_a_name()
    logging.getLogger().addFilter(_is_no_interrupt)
    under_submit = "PYSPARK_GATEWAY_PORT" in os.environ
    variables = {
        name: os.environ.get(name, sys.executable)
        for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
    }
    if not under_submit:
        variables["JAVA_HOME"] = str(find_java_home(os.environ))
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    if master is None and not under_submit:
        master = "local[*]"
    if master is not None:
        builder = builder.master(_with_retries(master))
    settings = dict(_ALWAYS)
    if not under_submit:
        # The work is done by Python workers; compiling JVM code well would cost more than it saves.
        settings["spark.driver.extraJavaOptions"] = (
            f"-XX:TieredStopAtLevel=1 -Dlog4j2.configurationFile={_LOGGING.as_uri()}"
        )
    if master is not None and master.startswith("local"):
        settings |= _LOCAL
        variables["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")
    for key, value in settings.items():
        builder = builder.config(key, value)
    with _environment(variables), _no_orphan():
        try:
            return builder.getOrCreate()
        except Exception as error:  # its text is asked of Java, which still runs
            raise SparkFailedError.of(error) from error


def _require_a_name() -> None:
    """Java takes name and home of a user from the system, and falls over its own feet without."""
    number = os.geteuid()
    if user_name(number) == str(number):
        raise ConfigError(
            f"the user {number} has no name here (getent passwd {number}), and Java starts for "
            "none without: run this as a user of /etc/passwd, or add a line for it there"
        )


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    """Py4J logs a Ctrl-C that passes through it, by the root logger and with its traceback."""
    return not record.exc_info or not isinstance(record.exc_info[1], KeyboardInterrupt)


@contextmanager
def _no_orphan() -> Iterator[None]:
    """End what was started within the block if it does not come to its end.

    A Java that loses PySpark on its way up (Ctrl-C, in the first seconds) does not end by itself.
    """
    before = _children()
    try:
        yield
    except BaseException:
        for each in _children() - before:
            with suppress(ProcessLookupError):
                if _is_spark(each):  # and no other thread's child
                    os.kill(each, signal.SIGKILL)
        raise


def _children() -> set[int]:
    """The processes that this one has started and that run."""
    found: set[int] = set()
    for each in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended
            found.update(map(int, each.read_text().split()))
    return found


def _is_spark(process: int) -> bool:
    """Whether it is Java with Spark in it, or the script that is about to start that."""
    try:
        return b"spark" in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:  # it has ended
        return False


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Variables for what is started within the block; nothing else of this process sees them.

    The JVM and the context read them once. What stayed behind would be taken for the user's own
    choice by whatever this process starts later.
    """
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _with_retries(master: str) -> str:
    """Local mode gives up with the first failure of a task, unless the master says otherwise."""
    local = _LOCAL_MASTER.match(master)
    return f"local[{local[1] or 1},{_FAILURES}]" if local else master
