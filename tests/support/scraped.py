"""Measures as a monitoring system reads them: by prometheus_client's parser."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.parser import text_string_to_metric_families

from common.metering.measures import Measure, MeasureKind


class Scraped:
    """What was scraped; `scraped["name", "value of a label", ...]` is a value,
    labels in the order of their names."""

    def __init__(self, text: bytes) -> None:
        self.families = {each.name: each for each in text_string_to_metric_families(text.decode())}
        self.values: dict[tuple[str, ...], float] = {}
        for family in self.families.values():
            for sample in family.samples:
                key = (sample.name, *sample.labels.values())
                assert key not in self.values, f"twice: {key}"
                self.values[key] = sample.value

    def __getitem__(self, key: str | tuple[str, ...]) -> float:
        return self.values[key if isinstance(key, tuple) else (key,)]

    def has(self, name: str) -> bool:
        """Whether there is any value of this name."""
        return any(key[0] == name for key in self.values)

    def of(self, name: str) -> dict[tuple[str, ...], float]:
        """Values of a name by their labels."""
        return {key[1:]: value for key, value in self.values.items() if key[0] == name}


def badly_named(table: Iterable[Measure]) -> list[str]:
    """Measures whose names break the customs of Prometheus."""
    found = []
    for each in table:
        if (each.kind is MeasureKind.COUNTER) is not each.name.endswith("_total"):
            found.append(f"{each.name}: only counters end in _total")
        if each.kind is MeasureKind.HISTOGRAM and not each.name.endswith("_seconds"):
            found.append(f"{each.name}: a histogram is of seconds")
        if any(unit in each.name for unit in ("_ms", "_milli", "_kb", "_mb", "_minutes", "_hours")):
            found.append(f"{each.name}: no base unit")
        if not each.meaning.endswith("."):
            found.append(f"{each.name}: its meaning is no sentence")
    return found
