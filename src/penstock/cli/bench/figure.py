"""One measured figure beside its target, and how it is shown."""

from typing import Final

import msgspec

from penstock.cli.output import duration, number, size

PASS, MISS, NONE = "PASS", "MISS", "–"
PERCENT: Final = 100


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A value with its unit, the target it should reach, and the raw limit of this machine."""

    row: str
    value: float
    unit: str
    """`/s`, `s`, `bytes`, `share`, `×` or `count`."""
    target: float | None = None
    is_at_most: bool = False
    """The target is an upper limit, not a lower one."""
    raw: str = ""
    """What the machine does without Penstock, for people."""
    note: str = ""

    @property
    def verdict(self) -> str:
        """PASS, MISS, or a dash when there is no target."""
        if self.target is None:
            return NONE
        is_good = self.value <= self.target if self.is_at_most else self.value >= self.target
        return PASS if is_good else MISS

    @property
    def value_text(self) -> str:
        """The value for people."""
        return shown(self.value, self.unit)

    @property
    def target_text(self) -> str:
        """The target for people."""
        if self.target is None:
            return ""
        return f"{'≤' if self.is_at_most else '≥'} {shown(self.target, self.unit)}"

    def to_json(self) -> dict[str, object]:
        """The figure for machines."""
        return {**msgspec.to_builtins(self), "verdict": self.verdict}


def shown(value: float, unit: str) -> str:
    """A value in its unit, for people."""
    match unit:
        case "/s":
            return f"{number(round(value))}/s"
        case "s":
            return duration(value)
        case "bytes":
            return size(value)
        case "share":
            return f"{value * PERCENT:.0f} %"
        case "×":
            return f"{value:.1f} ×"
        case _:
            return number(value)
