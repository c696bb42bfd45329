"""Line charts as the text of an SVG picture, for where nothing that draws is installed."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 460, 280, 56, 34, 16, 40
_COLOURS = ["#1f77b4", "#d62728", "#2ca02c", "#9467bd"]
_TICKS = 4


@dataclass
class Chart:
    """A title, points by the name of their line, and what lies along the bottom."""

    title: str
    lines: dict[str, list[tuple[float, float]]]
    x_label: str = "epoch"


def draw(charts: list[Chart]) -> str:
    """The charts beside each other."""
    width = _WIDTH * max(len(charts), 1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{_HEIGHT}" viewBox="0 0 {width} {_HEIGHT}" '
        'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="white"/>'
    ]
    parts += [f'<g transform="translate({at * _WIDTH} 0)">{_chart(chart)}</g>' for at, chart in enumerate(charts)]
    return "".join(parts) + "</svg>"


def _chart(chart: Chart) -> str:
    parts = [f'<text x="{_LEFT}" y="20" font-size="14">{escape(chart.title)}</text>']
    points = [point for line in chart.lines.values() for point in line]
    if not points:
        return parts[0] + f'<text x="{_LEFT}" y="{_HEIGHT // 2}">nothing yet</text>'
    (left, right), (low, high) = (_range([point[axis] for point in points]) for axis in (0, 1))

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - left) / (right - left) * (_WIDTH - _LEFT - _RIGHT)
        up = (y - low) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)
        return _LEFT + across, _HEIGHT - _BOTTOM - up

    for tick in range(_TICKS + 1):
        x, y = left + (right - left) * tick / _TICKS, low + (high - low) * tick / _TICKS
        across, up = place(x, y)
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{up:.1f}" y2="{up:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{up + 4:.1f}" text-anchor="end">{y:.3g}</text>')
        parts.append(f'<text x="{across:.1f}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{x:.3g}</text>')
    parts.append(f'<text x="{(_LEFT + _WIDTH) // 2}" y="{_HEIGHT - 6}" text-anchor="middle">{escape(chart.x_label)}</text>')
    for at, (name, line) in enumerate(chart.lines.items()):
        colour = _COLOURS[at % len(_COLOURS)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in line))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        place_of_name = f'x="{_WIDTH - _RIGHT}" y="{16 + 13 * at}" text-anchor="end"'
        parts.append(f'<text {place_of_name} fill="{colour}">{escape(name)}</text>')
    return "".join(parts)


def _range(values: list[float]) -> tuple[float, float]:
    """The least and the most, apart from each other."""
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 0.5, high + 0.5)
