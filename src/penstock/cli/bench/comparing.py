"""`penstock bench --compare …`, and one measurement of any URL: the work, the limits, the table."""

from argparse import Namespace
from pathlib import Path
from typing import Any, Final

import msgspec

from penstock.cli.bench import command, compare, loopback, machine, places, raw
from penstock.cli.bench.figure import shown
from penstock.cli.output import BOLD, Output, duration, number
from penstock.cli.progress import Progress

URL_WIDTH_MIN: Final = 15
LIMIT_S: Final = 1.0
"""How long each raw limit is measured."""
QUICK_LIMIT_S: Final = 0.2


def run(arguments: Namespace, output: Output) -> int:
    """Measures every URL in turn and shows them beside the first."""
    first = places.SERVE if arguments.serve else (getattr(arguments, "url", None) or "file:.")
    urls = list(dict.fromkeys([first, *arguments.compare]))
    with command.scratch(arguments) as folder:
        assert folder is not None, "every place has a folder"
        plan = command.plan_of(arguments, folder)
        limits = raw_limits(folder, QUICK_LIMIT_S if plan.is_quick else LIMIT_S)
        rounds = arguments.rounds if len(urls) > 1 else 1
        turns = []
        label = f"measuring {arguments.mode}"
        with Progress(output, label, rounds * len(urls)) as progress:
            for turn in compare.run(arguments.mode, urls, plan, rounds, progress.draw):
                turns.append(turn)
                progress.add()
        where = machine.describe(folder)
    rows = compare.standings(arguments.mode, turns)
    if output.is_json:
        asked = {**msgspec.to_builtins(plan), "folder": None}
        output.document(
            {
                "mode": arguments.mode,
                "plan": asked,
                "machine": where,
                "raw": limits,
                "standings": msgspec.to_builtins(rows),
                "turns": msgspec.to_builtins(turns),
            }
        )
    else:
        command.show_machine(output, where, plan)
        _show_limits(output, limits)
        output.say()
        if len(urls) > 1:
            _show_standings(output, rows)
        else:
            _show_one(output, turns[0], rows[0])
    return 1 if any(row.lost for row in rows) else 0


def raw_limits(folder: Path, seconds: float) -> dict[str, Any]:
    """What the disk and the loopback of this machine do without any broker."""
    syncs, disk = raw.sync_limit(folder, seconds)
    trips, wire = loopback.limit(seconds)
    return {
        "syncs_per_s": syncs,
        "fdatasync": msgspec.to_builtins(disk),
        "round_trips_per_s": trips,
        "loopback": msgspec.to_builtins(wire),
    }


def _show_limits(output: Output, limits: dict[str, Any]) -> None:
    for name, rate, unit, times in (
        ("raw disk", limits["syncs_per_s"], "syncs", limits["fdatasync"]),
        ("raw loopback", limits["round_trips_per_s"], "round trips", limits["loopback"]),
    ):
        text = f"{name}: {number(round(rate))} {unit}/s"
        output.say(f"{text}, p50 {duration(times['p50'])}, p99 {duration(times['p99'])}")


def _show_one(output: Output, turn: compare.Turn, row: compare.Standing) -> None:
    output.say(f"{turn.name}: {_described(row)}")
    figures = {name: value for name, value in turn.found.items() if name != "about"}
    output.pairs(dict(command.readable(figures)))


def _show_standings(output: Output, rows: list[compare.Standing]) -> None:
    first = rows[0].name
    width = max(URL_WIDTH_MIN, *(len(row.name) for row in rows))
    output.say(output.paint(f"{'URL':<{width}}  RESULT        RATIO   TURNS", BOLD))
    for row in rows:
        turns = " ".join(shown(value, row.unit) for value in row.values)
        ratio = "1" if row.name == first else f"{row.ratio:.1f}×"
        output.say(f"{row.name:<{width}}  {row.value_text:<12}  {ratio:<6}  {turns}")
        lost = f"; LOST {number(row.lost)}" if row.lost else ""
        output.say(f"    {_described(row)}{lost}")
        if row.note:
            output.say(f"    {row.note}")
    output.say(f"ratio: how many times as good as each is {first}")


def _described(row: compare.Standing) -> str:
    parts = [row.about.get(name, "") for name in ("server", "client", "durability")]
    return ", ".join(dict.fromkeys(part for part in parts if part))
