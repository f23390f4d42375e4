from __future__ import annotations

import pytest

from receiver.spark.session import SparkFailedError, _with_retries


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
