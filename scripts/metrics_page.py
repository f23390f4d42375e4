"""Writes the tables of docs/metrics.md from the tables of measures; a test holds that they agree.

python -m scripts.metrics_page
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from common.metering.measures import Measure  # noqa: E402
from receiver.metrics.receiver_measures import RECEIVER_MEASURES  # noqa: E402
from sender.metrics.sender_measures import SENDER_MEASURES  # noqa: E402

PAGE = ROOT / "docs" / "metrics.md"
TABLES: dict[str, tuple[Measure, ...]] = {
    "receiver": RECEIVER_MEASURES,
    "sender": SENDER_MEASURES,
}
_PLACE = r"(?s)(<!-- measures: {name} -->\n).*?(<!-- end -->)"


def table(measures: Iterable[Measure]) -> str:
    """The rows of a table in Markdown."""
    lines = ["| measure | kind | labels | is |", "|---|---|---|---|"]
    for each in measures:
        labels = " ".join(f"`{label}`" for label in each.labels) or "-"
        lines.append(f"| `{each.name}` | {each.kind} | {labels} | {each.meaning} |")
    return "\n".join(lines) + "\n"


def written(page: str) -> str:
    """The page with its tables as they should be.

    Raises:
        ValueError: it has no place for one of them.
    """
    for name, measures in TABLES.items():
        pattern = _PLACE.format(name=name)
        if not re.search(pattern, page):
            raise ValueError(f"the page has no place for the measures of the {name}")
        rows = table(measures)
        page = re.sub(pattern, lambda found, rows=rows: found[1] + rows + found[2], page)
    return page


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
