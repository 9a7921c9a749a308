"""A small chart for the terminal: one column of blocks for each value."""

from collections.abc import Sequence
from typing import Final

BLOCKS: Final = " ▁▂▃▄▅▆▇█"
STEPS: Final = len(BLOCKS) - 1


def chart(values: Sequence[float], labels: Sequence[str], height: int = 6) -> list[str]:
    """Lines of a bar chart that starts at 0; values below 0 have no bar.

    Labels stand under the first bar they belong to, as far as there is room.
    """
    top = max(values, default=0.0)
    levels = [round(max(0.0, value) / top * height * STEPS) if top > 0 else 0 for value in values]
    scale = [_number(top), *[""] * (height - 2), "0"]
    width = max(map(len, scale))
    lines = []
    for row in range(height):
        floor = (height - 1 - row) * STEPS
        bars = "".join(BLOCKS[max(0, min(STEPS, level - floor))] * 2 for level in levels)
        lines.append(f"{scale[row]:>{width}} ┤{bars.rstrip()}")
    lines.append(f"{'':>{width}}  {_under(labels)}".rstrip())
    return lines


def _under(labels: Sequence[str]) -> str:
    text = ""
    for at, label in enumerate(labels):
        if label and len(text) <= at * 2:
            text = text.ljust(at * 2) + label + " "
    return text.rstrip()


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2f}"  # noqa: PLR2004 - two digits
