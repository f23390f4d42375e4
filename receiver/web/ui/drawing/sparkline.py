"""A line of small bars as SVG: how much came in each hour, without a script."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from markupsafe import Markup

from common.console.terminal import size_text

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["sparkline"]

_BAR: Final = 4
_HEIGHT: Final = 20


def sparkline(sizes: Sequence[int], *, wide: bool = False) -> Markup:
    """Bars for bytes, the latest at the right; the highest fills the height.

    Args:
        sizes: bytes of each hour.
        wide: of an edge's own page, as large again.
    """
    total = sum(sizes)
    most = max(sizes, default=0) or 1
    last = size_text(sizes[-1] if sizes else 0)
    text = f"{size_text(total)} in {len(sizes)} hours, {last} in this one"
    bars = "".join(
        f'<rect x="{at * _BAR}" y="{_HEIGHT - high}" width="{_BAR - 1}" height="{high}"/>'
        for at, size in enumerate(sizes)
        if (high := max(1, round(size * _HEIGHT / most)) if size else 0)
    )
    width = len(sizes) * _BAR
    # All of it is made here of numbers: nothing that somebody named is in it.
    return Markup(  # noqa: S704
        f'<svg class="spark{" wide" if wide else ""}" viewBox="0 0 {width} {_HEIGHT}" '
        'preserveAspectRatio="xMinYMax meet" '
        f'role="img" aria-label="{text}"><title>{text}</title>'
        f'<path class="ground" d="M0 {_HEIGHT - 0.5}H{width}"/>{bars}</svg>'
    )
