"""Charts as static SVG text: they need no script, print well, and any browser shows them.

Colours are classes that the page defines for light and dark. Each mark has a `<title>`, which
browsers show where the pointer rests. All text from outside is escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup

from common.console.terminal import printable

__all__ = ["HUES", "Bar", "Stack", "bars", "rows", "short_number", "stacks"]

_WIDTH = 880
HUES = 8
"""Colours that the page defines: `c0` to `c7`."""
_LEFT = 64
_FOOT = 26
_TOP = 10
_HEIGHT = 190
_ROW = 22
_LABEL_WIDTH = 330


class Bar(NamedTuple):
    """One mark: its label on the axis, its length, and what is said of it."""

    label: str
    value: float
    title: str


@dataclass(frozen=True, slots=True)
class Stack:
    """Parts above each other at one place of the axis: (hue, value, title)."""

    label: str
    parts: Sequence[tuple[int, float, str]]

    @property
    def total(self) -> float:
        """The height."""
        return sum(value for _, value, _ in self.parts)


def bars(data: Sequence[Bar], *, name: str) -> Markup:
    """Upright bars of one colour, each with its label below: a histogram."""
    stacks_ = [Stack(each.label, [(0, each.value, each.title)]) for each in data]
    return stacks(stacks_, name=name, every=1)


def stacks(data: Sequence[Stack], *, name: str, every: int | None = None) -> Markup:
    """Upright stacked bars over a scale from 0.

    Args:
        data: in the order of the axis.
        name: of the chart, for those who do not see it.
        every: label every n-th bar; by default as many as there is room for.
    """
    if not data:
        return Markup("")
    scale = _Scale(max(each.total for each in data))
    step = (_WIDTH - _LEFT) / len(data)
    gap = min(step * 0.2, 6)
    every = every or max(1, -(-len(data) // 9))
    marks = [scale.grid()]
    for index, stack in enumerate(data):
        x = _LEFT + index * step
        height = 0.0
        for hue, value, title in stack.parts:
            part = scale.length(value)
            height += part
            marks.append(
                Markup(
                    '<rect class="c{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}">'
                    "<title>{}</title></rect>"
                ).format(
                    hue, x + gap / 2, _TOP + _HEIGHT - height, step - gap, part, printable(title)
                )
            )
        if index % every == 0:
            marks.append(
                Markup(
                    '<text class="tick" x="{:.1f}" y="{}" text-anchor="middle">{}</text>'
                ).format(x + step / 2, _TOP + _HEIGHT + 17, stack.label)
            )
    return _svg(marks, _TOP + _HEIGHT + _FOOT, name)


def rows(data: Sequence[Bar], *, name: str) -> Markup:
    """Lying bars, one a row, with the label before and what is said of it behind."""
    if not data:
        return Markup("")
    most = max(each.value for each in data) or 1
    room = _WIDTH - _LABEL_WIDTH - 190
    marks = []
    for index, (text, value, title) in enumerate(data):
        label = printable(text)
        y = index * _ROW + 4
        width = max(1.5, value / most * room)
        shown = _shortened(label, _LABEL_WIDTH // 7)
        marks.append(
            Markup(
                '<text class="name" x="{}" y="{}" text-anchor="end">{}<title>{}</title></text>'
                '<rect class="c0" x="{}" y="{}" width="{:.1f}" height="{}"><title>{}</title></rect>'
                '<text class="tick" x="{:.1f}" y="{}">{}</text>'
            ).format(
                _LABEL_WIDTH - 8,
                y + 14,
                shown,
                label,
                _LABEL_WIDTH,
                y + 2,
                width,
                _ROW - 7,
                title,
                _LABEL_WIDTH + width + 6,
                y + 14,
                title,
            )
        )
    return _svg(marks, len(data) * _ROW + 8, name)


class _Scale:
    """A linear scale from 0 to a round number above the largest value."""

    def __init__(self, most: float) -> None:
        self._step = _round_step(most / 4)
        self._top = self._step * max(1, -(-most // self._step))

    def length(self, value: float) -> float:
        return value / self._top * _HEIGHT

    def grid(self) -> Markup:
        lines = []
        value = 0.0
        while value <= self._top * 1.0001:
            y = _TOP + _HEIGHT - self.length(value)
            lines.append(
                Markup(
                    '<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>'
                    '<text class="tick" x="{}" y="{:.1f}" text-anchor="end">{}</text>'
                ).format(_LEFT, _WIDTH, y, y, _LEFT - 6, y + 4, short_number(value))
            )
            value += self._step
        return Markup("").join(lines)


def short_number(value: float) -> str:
    """Three digits or so, with a prefix: 1.5 k, 20 M."""
    for limit, mark in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g} {mark}"
    return f"{value:.3g}"


def _round_step(least: float) -> float:
    """The next of 1, 2, 5, 10, 20, ... ; whole things are counted, so not below 1."""
    step = 1.0
    while True:
        for factor in (1, 2, 5):
            if step * factor >= least:
                return step * factor
        step *= 10


def _shortened(text: str, most: int) -> str:
    """The end says more of a path than its begin."""
    return text if len(text) <= most else "…" + text[-(most - 1) :]


def _svg(marks: Sequence[Markup], height: float, name: str) -> Markup:
    return Markup(
        '<svg viewBox="0 0 {} {:.0f}" role="img" aria-label="{}" '
        'xmlns="http://www.w3.org/2000/svg">{}</svg>'
    ).format(_WIDTH, height, name, Markup("").join(marks))
