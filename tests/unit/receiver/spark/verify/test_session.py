from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from common.errors import ConfigError
from receiver.spark.verify.session import SparkFailedError, _with_retries, start, was_interrupted


@pytest.mark.parametrize(
    ("master", "used"),
    [
        ("local", "local[1,4]"),
        ("local[2]", "local[2,4]"),
        ("local[*]", "local[*,4]"),
        ("local[2,1]", "local[2,1]"),
        ("spark://a:7077", "spark://a:7077"),
    ],
)
def test_a_task_is_tried_again_on_one_machine_too(master: str, used: str) -> None:
    assert _with_retries(master) == used


def test_an_error_of_spark_is_one_line() -> None:
    text = (
        "An error occurred while calling o1.x.\n: org.apache.spark.SparkException: no room\n"
        "\tat a.b(C.scala:1)\n"
    )
    said = SparkFailedError.of(Exception(text)).message
    assert said == "Spark failed: org.apache.spark.SparkException: no room"
    assert SparkFailedError.of(KeyError()).message == "Spark failed: KeyError"
    text = (
        "\n  An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
        '  File "x.py", line 3, in f\n    raise\npyspark.errors.RuntimeError: [OTHER] 3.12\n\n'
    )
    said = SparkFailedError.of(Exception(text)).message
    assert said == "Spark failed: pyspark.errors.RuntimeError: [OTHER] 3.12"


def test_the_error_of_a_cancelled_job_is_known_for_the_ctrl_c_that_it_hides() -> None:
    def cancelled() -> None:
        try:
            raise KeyboardInterrupt
        finally:
            try:
                raise OSError("of py4j")
            except OSError:
                raise RuntimeError("job 0 was cancelled") from None

    with pytest.raises(RuntimeError) as caught:
        cancelled()
    ours = SparkFailedError("x")
    ours.__cause__ = caught.value
    assert was_interrupted(ours)
    assert not was_interrupted(RuntimeError("job 0 was cancelled"))


def test_what_spark_is_started_with_does_not_stay_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions of one process, and what it starts later, do not meet each other's settings."""
    pytest.importorskip("pyspark")
    seen: dict[str, str] = {}
    builder = "pyspark.sql.SparkSession.Builder.getOrCreate"
    monkeypatch.setattr(builder, lambda _: seen.update(os.environ))
    monkeypatch.setattr("receiver.spark.verify.session.find_java_home", lambda _: Path("/java"))
    monkeypatch.setenv("JAVA_HOME", "/old")
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "mine")
    for name in ("PYSPARK_PYTHON", "SPARK_LOCAL_IP", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    before = dict(os.environ)
    start("local[1]")
    assert dict(os.environ) == before
    assert {name: seen[name] for name in seen if before.get(name) != seen[name]} == {
        "JAVA_HOME": "/java", "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1",
    }  # fmt: skip

    def fail(_: object) -> None:
        raise OSError("no room")

    monkeypatch.setattr(builder, fail)
    with pytest.raises(SparkFailedError, match="no room"):
        start("local[1]")
    assert dict(os.environ) == before


def test_a_user_without_a_name_is_told_so_before_java_falls_over_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 3_999_999_999)
    with pytest.raises(ConfigError, match="the user 3999999999 has no name here"):
        start("local[1]")
