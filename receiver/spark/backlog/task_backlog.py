"""Background tasks of a receiver done by workers of a Spark cluster, each task by its own lease.

    from receiver.spark.backlog.task_backlog import work_off
    for worker in work_off(spark, "https://centre.example:8585", workers=16):
        print(worker.host, worker.tasks)

Spark only starts the workers and counts what they did. Who does what stands in the receiver's table
of tasks, so a worker that Spark starts once more, or twice, takes other tasks, and one that dies
loses its own to others when the lease is over. The token is in the environment of the workers and
nowhere else.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from common.errors import UsageError
from receiver.spark.verify.worker_code import shipped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from receiver.executor.task_executor import Executor

__all__ = ["BacklogPlan", "BacklogWorker", "work_off", "worker_token"]

_TOKEN: Final = "TSFERRY_WORKER_TOKEN"  # noqa: S105  # names of variables, not what is in them
_TOKEN_PATH: Final = "TSFERRY_WORKER_TOKEN_FILE"  # noqa: S105
_ROW: Final = "worker long, host string, tasks long"
_SCHEMA: Final = pa.schema([("worker", pa.int64()), ("host", pa.string()), ("tasks", pa.int64())])
_MOST_GIVEN_BACK: Final = 3
"""Tasks, one after another, that a worker cannot do now; then it leaves them to others."""


class BacklogWorker(NamedTuple):
    """What one worker did.

    Attributes:
        host: that it ran on.
        tasks: that it took, however they ended.
    """

    host: str
    tasks: int


@dataclass(frozen=True)
class BacklogPlan:
    """What each worker is told."""

    url: str
    kinds: tuple[str, ...]
    ca_cert: str | None
    token_file: str | None
    data_dirs: tuple[str, ...]
    memory: int
    store: bool = False

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow`: each row is a worker."""
        from receiver.executor.task_executor import executor_of

        for batch in batches:
            for worker in batch.column(0).to_pylist():
                executor = executor_of(
                    self.url,
                    worker_token(os.environ, self.token_file),
                    self.ca_cert,
                    [Path(each) for each in self.data_dirs],
                    self.memory,
                    store=self.store,
                )
                done = _until_nothing_waits(executor, self.kinds)
                yield pa.RecordBatch.from_pylist(
                    [{"worker": worker, "host": socket.gethostname(), "tasks": done}], _SCHEMA
                )


def work_off(
    spark: SparkSession,
    url: str,
    *,
    workers: int,
    kinds: Sequence[str] = ("merge", "prove"),
    ca_cert: str | None = None,
    token_file: str | None = None,
    data_dirs: Sequence[str] = (),
    memory: int = 1 << 30,
    store: bool = False,
) -> list[BacklogWorker]:
    """Have workers do background tasks of a receiver until none waits.

    Args:
        spark: a session; as many workers run at a time as it has cores for.
        url: of the receiver; over https, except on loopback.
        workers: how many at most.
        kinds: of the tasks.
        ca_cert: PEM file on the workers that the receiver is checked against.
        token_file: on the workers, that has a worker's token; without one it is in their
            environment.
        data_dirs: data directories of the receiver that the workers see.
        memory: bytes that merging may take, for each worker, beside what Spark knows of.
        store: whether files are read from the receiver's object store, where that has them.

    Returns:
        what each worker did.

    Raises:
        UsageError: there are no workers.
    """
    if workers < 1:
        raise UsageError(f"workers: {workers}; expected 1 or more")
    plan = BacklogPlan(url, tuple(kinds), ca_cert, token_file, tuple(data_dirs), memory, store)
    numbers = spark.range(0, workers, 1, numPartitions=workers)
    rows = sorted(numbers.mapInArrow(shipped(_as_it_is, None, plan), _ROW).collect())
    return [BacklogWorker(str(row["host"]), int(row["tasks"])) for row in rows]


def _as_it_is(_: None, plan: BacklogPlan) -> BacklogPlan:
    return plan


def worker_token(environ: Mapping[str, str], file: str | None = None) -> str:
    """The token of a process of a worker.

    Args:
        environ: of the process.
        file: that has it, where one is named otherwise than there.

    Raises:
        UsageError: it has none, or the file cannot be read.
    """
    token, path = environ.get(_TOKEN, "").strip(), file or environ.get(_TOKEN_PATH)
    if path and (file or not token):
        try:
            token = Path(path).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{path}: expected a readable file with a token: {error}") from error
    if not token:
        raise UsageError(
            f"{_TOKEN}, or {_TOKEN_PATH}: missing in the environment of a worker; expected the "
            "token of a worker"
        )
    return token


def _until_nothing_waits(executor: Executor, kinds: Sequence[str]) -> int:
    done = 0
    while executor.given_back < _MOST_GIVEN_BACK and executor.run_once(kinds) is not None:
        done += 1
    return done
