"""The same work on several brokers in one run, in turns, and how they compare.

The order rotates from round to round, so that none always works on a fresh or a tired machine.
"""

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import msgspec

from penstock.cli.bench import child, places
from penstock.cli.bench.figure import shown
from penstock.cli.bench.plan import Plan
from penstock.vocabulary.credentials import without_credentials

MODES: Final = ("publish", "consume", "end-to-end", "latency", "callers", "one")
"""Work that every side can do."""
ROUNDS: Final = 2

Tick = Callable[[], None] | None


class Turn(msgspec.Struct, frozen=True):
    """One broker's work in one round."""

    name: str
    round: int
    found: dict[str, Any]


class Standing(msgspec.Struct, frozen=True):
    """What one broker reached, as the median of its turns, beside the first."""

    name: str
    value: float
    unit: str
    ratio: float
    """How many times as good the first one is; 1 for itself."""
    values: list[float]
    lost: int
    about: dict[str, str]
    note: str = ""

    @property
    def value_text(self) -> str:
        """The value for people."""
        return shown(self.value, self.unit)


def order(names: Sequence[str], number: int) -> list[str]:
    """The names in the order of one round: each round begins one further."""
    at = number % len(names)
    return [*names[at:], *names[:at]]


def run(
    mode: str, urls: Sequence[str], plan: Plan, rounds: int = ROUNDS, tick: Tick = None
) -> Iterator[Turn]:
    """Starts what must be started, and gives each its turns."""
    with ExitStack() as stack:
        ready = {
            url: stack.enter_context(places.opened(url, Path(plan.folder) / f"place-{i}", plan))
            for i, url in enumerate(urls)
        }
        for place in ready.values():
            places.check_reached(place)
        for number in range(rounds):
            for name in order(list(ready), number):
                found = child.run(f"load-{mode}", ready[name].plan, tick)
                if ready[name].server is not None:
                    found["server_resident_bytes"] = ready[name].server.resident_bytes()
                if ready[name].durability:
                    found["about"]["durability"] = ready[name].durability
                yield Turn(without_credentials(name), number, found)


def headline(mode: str, found: dict[str, Any]) -> tuple[float, str]:
    """The figure by which a mode is compared, and its unit."""
    match mode:
        case "latency":
            return found["confirmed"]["p50"], "s"
        case "one":
            return found["latency"]["p50"], "s"
        case _:
            return found["messages_per_s"], "/s"


def standings(mode: str, turns: Sequence[Turn]) -> list[Standing]:
    """Every broker beside the first, in the order they were named."""
    rows: dict[str, list[Turn]] = {}
    for turn in sorted(turns, key=lambda turn: turn.round):
        rows.setdefault(turn.name, []).append(turn)
    first = turns[0].name
    medians = {
        name: statistics.median(headline(mode, turn.found)[0] for turn in own)
        for name, own in rows.items()
    }
    found = []
    for name, own in rows.items():
        unit = headline(mode, own[0].found)[1]
        mine, other = medians[first], medians[name]
        found.append(
            Standing(
                name=name,
                value=other,
                unit=unit,
                ratio=_ratio(mine, other) if unit == "/s" else _ratio(other, mine),
                values=[headline(mode, turn.found)[0] for turn in own],
                lost=sum(turn.found.get("lost", 0) for turn in own),
                about=own[-1].found.get("about", {}),
                note=_note(mode, own),
            )
        )
    return found


def _ratio(above: float, below: float) -> float:
    return above / below if below else float("inf")


def _note(mode: str, own: Sequence[Turn]) -> str:
    """Times beside the headline, those of the last turn."""
    found = own[-1].found
    names = {"latency": ("confirmed", "delivered"), "one": ("latency",), "callers": ("latency",)}
    parts = []
    for name in names.get(mode, ()):
        times = found[name]
        shares = ("p50", "p90", "p99", "p999", "worst")
        text = ", ".join(f"{share} {shown(times[share], 's')}" for share in shares)
        parts.append(f"{name}: {text}")
    return "; ".join(parts)
