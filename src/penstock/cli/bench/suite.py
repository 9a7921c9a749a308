"""The table of targets: every row measured in turn, beside its target and the raw limit."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from penstock.cli.bench import child, modes, net, net_targets, raw, targets
from penstock.cli.bench.figure import Figure
from penstock.cli.bench.modes import Tick
from penstock.cli.bench.plan import Plan
from penstock.cli.bench.row import Limits, Result, Row, nothing_lost
from penstock.cli.output import duration, number, size

MEGABYTE: Final = 1_000_000.0
GIGABYTE: Final = 1_000_000_000.0


def raw_limits(folder: Path, seconds: float) -> Limits:
    """The raw disk, measured in the same run on the same disk."""
    rate, times = raw.sync_limit(folder, seconds)
    return Limits(rate, times.p50, times.p90, times.p99)


def run(
    plan: Plan, rows: tuple[Row, ...], limits: Limits, tick: Tick = None
) -> Iterator[tuple[Row, Result, list[Figure]]]:
    """Measures row by row, each in a fresh folder that is removed afterwards."""
    for number_of_row, row in enumerate(rows, start=1):
        folder = plan.path / f"row-{number_of_row}" / "store"
        folder.parent.mkdir()
        asked = msgspec.structs.replace(plan, folder=str(folder), **row.changes)
        try:
            if row.mode in modes.MODES:
                found = modes.measure(row.mode, asked, tick)
            elif row.mode in net.MODES:
                found = net.measure(row.mode, asked, tick)
            else:
                found = child.run(row.mode, asked, tick)
            yield row, found, row.judge(found, limits)
        finally:
            shutil.rmtree(folder.parent, ignore_errors=True)


# -- judging ---------------------------------------------------------------------------------------


def judge_batches(found: Result, _limits: Limits) -> list[Figure]:
    """Publish, batches of 1,000."""
    return [
        Figure(
            row="publish, batches of 1,000",
            value=found["messages_per_s"],
            unit="/s",
            target=1_500_000,
            raw=f"{size(found['raw_bytes_per_s'])}/s in groups of {size(found['group_bytes'])}",
            note=f"{size(found['bytes_per_s'])}/s of bodies",
        )
    ]


def judge_kilobytes(found: Result, _limits: Limits) -> list[Figure]:
    """Publish, batches of 100 bodies of 1 kB, against the raw disk with the same groups."""
    return [
        Figure(
            row="publish, batches of 100 × 1 kB, share of raw",
            value=found["raw_share"],
            unit="share",
            target=0.4,
            raw=f"{size(found['raw_bytes_per_s'])}/s in groups of {size(found['group_bytes'])}",
            note=f"{size(found['bytes_per_s'])}/s, {number(round(found['messages_per_s']))} msg/s",
        )
    ]


def judge_end_to_end(found: Result, _limits: Limits) -> list[Figure]:
    """Publish, deliver, ack each message."""
    return [
        Figure(
            row="publish → deliver → ack each, batches of 100",
            value=found["messages_per_s"],
            unit="/s",
            target=500_000,
            note=f"{number(found['messages'])} messages",
        ),
        nothing_lost("publish → deliver → ack each, lost", found["lost"]),
    ]


def judge_callers(found: Result, _limits: Limits) -> list[Figure]:
    """100 tasks, each awaiting its own publish."""
    times, limit = found["latency"], found["raw_syncs_per_s"]
    return [
        Figure(
            row="100 tasks, each awaiting its publish",
            value=found["messages_per_s"],
            unit="/s",
            target=min(30 * limit, 80_000),
            raw=f"{number(round(limit))} syncs/s",
            note=f"p50 {duration(times['p50'])}, p99 {duration(times['p99'])}",
        )
    ]


def judge_latency(found: Result, _limits: Limits) -> list[Figure]:
    """One task awaiting each publish."""
    return _latency("one task awaiting each publish", found)


def judge_latency_busy(found: Result, _limits: Limits) -> list[Figure]:
    """The same while segments roll, snapshots and compaction run."""
    return _latency("the same, rolling and compacting", found)


def _latency(row: str, found: Result) -> list[Figure]:
    ours, limit = found["latency"], found["raw"]
    note = f"{number(round(found['rate']))}/s, worst {duration(ours['worst'])}"
    return [
        Figure(
            row=f"{row}, p50",
            value=ours["p50"],
            unit="s",
            target=limit["p50"] + 100e-6,
            is_at_most=True,
            raw=f"p50 {duration(limit['p50'])}",
            note=note,
        ),
        Figure(
            row=f"{row}, p99",
            value=ours["p99"],
            unit="s",
            target=5 * limit["p99"],
            is_at_most=True,
            raw=f"p99 {duration(limit['p99'])}",
            note=f"p99.9 {duration(ours['p999'])}",
        ),
    ]


def judge_recovery(found: Result, _limits: Limits) -> list[Figure]:
    """Opening again after a clean stop, and after a kill."""
    log = found["killed_log_bytes"]
    return [
        Figure(
            row="open after a clean stop",
            value=found["clean_open_s"],
            unit="s",
            target=0.5,
            is_at_most=True,
            note=f"{size(found['clean_bytes'])} on disk",
        ),
        Figure(
            row="open after a kill",
            value=found["killed_open_s"],
            unit="s",
            target=0.5 + 2.0 * log / GIGABYTE,
            is_at_most=True,
            note=f"{size(log)} of log since the snapshot",
        ),
        nothing_lost("confirmed messages lost by the kill", found["lost"]),
    ]


def judge_unacked(found: Result, _limits: Limits) -> list[Figure]:
    """The broker's state for what is delivered and not acked."""
    share = found["unacked"] / 1_000_000
    return [
        Figure(
            row=f"state of {number(found['unacked'])} unacked in deliveries of 100",
            value=found["state_bytes"],
            unit="bytes",
            target=10 * MEGABYTE * share,
            is_at_most=True,
            note=f"{found['state_bytes'] / max(1, found['unacked']):.1f} bytes a message",
        )
    ]


def judge_backlog(found: Result, _limits: Limits) -> list[Figure]:
    """A process that holds a backlog published one by one."""
    return [
        Figure(
            row=f"process with a backlog of {number(found['messages_held'])}, published singly",
            value=found["resident_bytes"],
            unit="bytes",
            target=400 * MEGABYTE,
            is_at_most=True,
            note=f"{size(found['resident_bytes_empty'])} before",
        )
    ]


def judge_topics(found: Result, _limits: Limits) -> list[Figure]:
    """Very many topics, one subscription each."""
    count = number(found["topics"])
    return [
        Figure(
            row=f"{count} topics: rate, share of one topic's",
            value=found["share"],
            unit="share",
            target=0.8,
            note=f"{number(round(found['messages_per_s']))}/s of "
            f"{number(round(found['one_topic_messages_per_s']))}/s",
        ),
        Figure(
            row=f"{count} topics: memory of an idle one",
            value=found["bytes_per_topic"],
            unit="bytes",
            target=2_000,
            is_at_most=True,
        ),
        Figure(
            row=f"{count} topics: open again",
            value=found["reopen_s"],
            unit="s",
            target=10.0,
            is_at_most=True,
        ),
    ]


def judge_compaction(found: Result, _limits: Limits) -> list[Figure]:
    """Disk use after almost everything was acked."""
    what = f"{number(found['messages'])} published, {number(found['kept'])} kept"
    return [
        Figure(
            row=f"{what}: disk 5 s later",
            value=found["disk_bytes"],
            unit="bytes",
            target=found["limit_bytes"],
            is_at_most=True,
            note=f"{size(found['peak_bytes'])} before; snapshots {size(found['other_bytes'])}",
        ),
        nothing_lost(f"{what}: lost or repeated", found["missing"] + found["unexpected"]),
    ]


ROWS: Final = (
    Row("batches", "publish", {"batch": 1_000}, judge_batches),
    Row("kilobytes", "publish", {"batch": 100, "size": 1_000, "in_flight": 20}, judge_kilobytes),
    Row("end-to-end", "end-to-end", {"batch": 100, "in_flight": 64}, judge_end_to_end),
    Row("callers", "callers", {}, judge_callers),
    Row("latency", "latency", {}, judge_latency),
    Row("latency-busy", "latency-busy", {}, judge_latency_busy),
    Row("recovery", "recovery", {}, judge_recovery),
    Row("unacked", "unacked", {}, judge_unacked),
    Row("backlog", "backlog", {}, judge_backlog),
    Row("topics", "topics", {}, judge_topics),
    Row("compaction", "compaction", {}, judge_compaction),
    Row("compaction-1000", "compaction", {"keep_every": 1_000}, judge_compaction),
    Row("compaction-1k", "compaction", {"size": 1_000}, judge_compaction),
    Row(
        "compaction-1k-1000",
        "compaction",
        {"size": 1_000, "keep_every": 1_000},
        judge_compaction,
    ),
    *targets.ROWS,
    *net_targets.ROWS,
)
