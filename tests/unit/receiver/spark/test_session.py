from __future__ import annotations

import pytest

from receiver.spark.session import SparkFailedError, _with_retries, was_interrupted


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
