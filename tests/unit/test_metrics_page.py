"""The page of measures, and the dashboard's form."""

from __future__ import annotations

import json

import pytest

from common.metering.measures import gauge
from scripts import metrics_page
from tests.support.architecture import ROOT


def test_a_measure_that_is_new_is_seen(monkeypatch) -> None:
    more = (*metrics_page.TABLES["sender"], gauge("tsferry_sender_new", "New."))
    monkeypatch.setitem(metrics_page.TABLES, "sender", more)
    page = metrics_page.PAGE.read_text()
    assert metrics_page.written(page) != page
    with pytest.raises(ValueError, match="no place"):
        metrics_page.written("# Metrics")


def test_the_dashboard_can_be_imported() -> None:
    """Panels do not lie on each other, and each has its id, its data source and an expression."""
    found = json.loads((ROOT / "conf" / "dashboard.json").read_text())
    assert {"title", "uid", "schemaVersion", "templating", "panels"} <= found.keys()
    names = {each["name"] for each in found["templating"]["list"]}
    assert names == {"datasource", "edge"}
    panels = found["panels"]
    assert len({each["id"] for each in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for each in panels:
        at = each["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {
            (at["x"] + right, at["y"] + down) for right in range(at["w"]) for down in range(at["h"])
        }
        assert not cells & taken, each["title"]
        taken |= cells
        if each["type"] != "row":
            assert all(target["expr"] for target in each["targets"])
            assert each["datasource"]["uid"] == "${datasource}"
