"""The dashboard and the alerts over a centre that was just set up: nothing is there yet."""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.architecture import ROOT
from tests.support.centre import centre
from tests.support.ports import free_port
from tests.support.procs import wait_until
from tests.support.prometheus import needs_prometheus, prometheus
from tests.system.test_metrics_watched import ALERTS, panels

NO_DATA = {
    "Verified": "there is no file of which a part could be",
    "Ends in": "it has neither a certificate nor a token that ends",
    "Age of the last backup": "there was none",
    "Since the oldest verification": "there was none",
    "Files without a copy in the store": "there is no store",
    "Versions": "no edge has said what it runs",
}
"""Panels of the centre that are right to be empty; they say so by `noValue`."""
NONE_MEASURED = {"Duration of a load, nine of ten", "Duration of a request, nine of ten"}
"""Of what has not happened yet there is no quantile: it is no number."""


@needs_prometheus
@pytest.mark.slow
def test_of_a_fresh_centre_each_panel_has_a_number_or_is_right_to_have_none(tmp_path: Path) -> None:
    port = free_port()
    with centre(tmp_path / "dc", f'[metrics]\nlisten = "127.0.0.1:{port}"\n') as fresh:
        fresh.start()
        job = {"job_name": "tsferry", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
        with prometheus(tmp_path / "prometheus", [job], ALERTS) as server:
            wait_until(
                lambda: server.query("count_over_time(tsferry_receiver_ready[1m]) > 3"),
                "a few scrapes",
            )
            of_edges = {
                title for title, text in panels() if "tsferry_edge_" in text or "_sender_" in text
            }
            found: dict[tuple[str, str], list[dict[str, Any]]] = {}
            empty: set[str] = set()

            def is_shown() -> bool:
                """A rate wants two scrapes in ten seconds, which a busy machine may not have."""
                found.update({each: server.query(each[1]) for each in panels()})
                empty.clear()
                empty.update(title for (title, _), values in found.items() if not values)
                return empty - of_edges == NO_DATA.keys()

            with suppress(AssertionError):  # what is lacking is said below
                wait_until(is_shown, "rates")
            firing = server.query('ALERTS{alertstate="firing"}')
    assert empty - of_edges == NO_DATA.keys()
    assert not of_edges - empty, "there is no edge"
    numbers = {
        title: [float(each["value"][1]) for each in values] for (title, _), values in found.items()
    }
    odd = {title for title, values in numbers.items() if any(map(math.isnan, values))}
    assert odd <= NONE_MEASURED
    assert numbers["Late"] == numbers["Lost files"] == numbers["Not taken"] == [0.0]
    assert set(numbers["Loads"]) == {0.0}
    assert firing == []


def test_what_may_be_empty_says_so() -> None:
    import json

    shown = json.loads((ROOT / "conf" / "dashboard.json").read_text())["panels"]
    said = {each["title"] for each in shown if each.get("fieldConfig", {})
            .get("defaults", {}).get("noValue")}  # fmt: skip
    assert said >= NO_DATA.keys()
