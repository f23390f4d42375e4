"""Measures: what a program tells a monitoring system, in Prometheus' text format.

A measure stands in a table of its program with its name, kind, meaning and labels; the page of the
manual is made of these tables. Names have base units (`_seconds`, `_bytes`), counters end in
`_total`, moments in `_timestamp_seconds`. A `Readings` is filled with values, each for a measure of
the table, and becomes the text. `prometheus_client` writes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.registry import Collector

from common.metering.tallies import Distribution

__all__ = ["CONTENT_TYPE", "Measure", "MeasureKind", "Readings", "counter", "gauge", "histogram"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class MeasureKind(StrEnum):
    """What may become of a value: a counter only grows while the process lives."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True)
class Measure:
    """One measure.

    Attributes:
        name: as it is scraped; of a histogram without `_bucket`, `_sum` and `_count`.
        kind: what it is.
        meaning: in a sentence.
        labels: names of its labels.
    """

    name: str
    kind: MeasureKind
    meaning: str
    labels: tuple[str, ...] = ()


def counter(name: str, meaning: str, *labels: str) -> Measure:
    """A measure that only grows."""
    return Measure(name, MeasureKind.COUNTER, meaning, labels)


def gauge(name: str, meaning: str, *labels: str) -> Measure:
    """A measure that goes up and down."""
    return Measure(name, MeasureKind.GAUGE, meaning, labels)


def histogram(name: str, meaning: str, *labels: str) -> Measure:
    """Durations in buckets."""
    return Measure(name, MeasureKind.HISTOGRAM, meaning, labels)


class Readings(Collector):
    """Values of measures at one moment.

    Args:
        table: of all measures that may have one.
    """

    def __init__(self, table: Iterable[Measure]) -> None:
        self._families: dict[Measure, Metric] = {each: _family(each) for each in table}

    def put(self, measure: Measure, value: float | bool | None, *labels: str) -> None:
        """Enter a value; None for one that is not known, which leaves it out."""
        if value is not None:
            self._families[measure].add_metric(labels, float(value))  # type: ignore[attr-defined]

    def put_all(self, measure: Measure, sums: dict[tuple[str, ...], float]) -> None:
        """Enter the sums of a tally, by their labels."""
        for labels, value in sums.items():
            self.put(measure, value, *labels)

    def put_distribution(self, measure: Measure, found: Distribution, *labels: str) -> None:
        """Enter durations."""
        buckets = [(_go_float(end), count) for end, count in found.buckets.items()]
        family = self._families[measure]
        family.add_metric(labels, buckets, found.total)  # type: ignore[attr-defined]

    def collect(self) -> Iterable[Metric]:
        """The families that have a value, in the order of the table."""
        return [each for each in self._families.values() if each.samples]

    def text(self) -> bytes:
        """All of it, as it is scraped."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Fixed(list(self.collect())))
        return generate_latest(registry)


class _Fixed(Collector):
    """Families that are there already; registering asks for no description."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> list[Metric]:
        return self._families


def _go_float(number: float) -> str:
    """As labels of buckets have it."""
    return "+Inf" if number == float("inf") else repr(number)


def _family(measure: Measure) -> Metric:
    kinds = {
        MeasureKind.COUNTER: CounterMetricFamily,
        MeasureKind.GAUGE: GaugeMetricFamily,
        MeasureKind.HISTOGRAM: HistogramMetricFamily,
    }
    made: Metric = kinds[measure.kind](measure.name, measure.meaning, labels=measure.labels)
    return made
