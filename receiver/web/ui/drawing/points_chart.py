"""Points of time partitions as bars of SVG, each with its text, without a script."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from markupsafe import Markup

from receiver.web.ui.drawing.page_texts import number, stamp

if TYPE_CHECKING:
    from receiver.operator.namespace.group_partitions import PartitionWindow

__all__ = ["points_chart"]

_BAR: Final = 6
_HEIGHT: Final = 100


def points_chart(window: PartitionWindow, interval: float) -> Markup:
    """Bars for points a day, the latest at the right; the highest fills the height.

    Args:
        window: what to draw.
        interval: length of a partition, in seconds.
    """
    days = interval / 86_400
    most = max((each.points for each in window.totals.values()), default=0) or 1
    bars = "".join(
        f'<rect x="{(at - window.begin) * _BAR}" y="{_HEIGHT - high}" width="{_BAR - 1}" '
        f'height="{high}"><title>{_begun(at, interval)}: {number(total.points / days)} points a '
        f"day, {number(total.files)} files</title></rect>"
        for at, total in sorted(window.totals.items())
        if (high := max(1, round(total.points * _HEIGHT / most)))
    )
    width = (window.end - window.begin) * _BAR
    text = (
        f"Points a day of {window.end - window.begin} time partitions, from "
        f"{_begun(window.begin, interval)} on; the most is {number(most / days)}"
    )
    # All of it is made here of numbers: nothing that somebody named is in it.
    return Markup(  # noqa: S704
        f'<svg class="points" viewBox="0 0 {width} {_HEIGHT}" preserveAspectRatio="none" '
        f'role="img" aria-label="{text}"><path class="ground" d="M0 {_HEIGHT - 0.5}H{width}"/>'
        f"{bars}</svg>"
    )


def _begun(partition: int, interval: float) -> str:
    return stamp(partition * interval)[:10]
