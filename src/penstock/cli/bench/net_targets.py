"""The rows of the suite about the server, and what they should reach."""

from typing import Final

from penstock.cli.bench.figure import Figure
from penstock.cli.bench.row import Judge, Limits, Result, Row, nothing_lost
from penstock.cli.output import duration, number, size

GIGABYTE: Final = 1_000_000_000.0
ABOVE_RAW_S: Final = 200e-6
"""What one publish over the network may take beside the disk and the wire."""


def _ratio(row: str, name: str, found: Result, target: float) -> Figure:
    """How many times as fast we are; 0 when the other one cannot be had."""
    if name in found["absent"]:
        note = f"{name} is missing: `make servers` gets it"
        return Figure(row=f"{row}: × {name}", value=0.0, unit="×", target=target, note=note)
    values = found["values"]
    return Figure(
        row=f"{row}: × {name}",
        value=found["ratios"][name],
        unit="×",
        target=target,
        note=f"{number(round(values['serve:']))}/s against {number(round(values[name]))}/s",
    )


def judge_end_to_end(found: Result, _limits: Limits) -> list[Figure]:
    """Publish, deliver and ack each message over TCP, beside NATS and Redis."""
    row = "server: publish → deliver → ack each"
    return [
        Figure(
            row=f"{row}, batches of 100",
            value=found["messages_per_s"],
            unit="/s",
            target=450_000,
            note=f"{number(found['messages'])} messages in the last turn",
        ),
        _ratio(row, "nats:", found, 20),
        _ratio(row, "redis:", found, 10),
        nothing_lost(f"{row}, lost", found["lost"]),
    ]


def judge_tasks(found: Result, _limits: Limits) -> list[Figure]:
    """100 tasks, each awaiting its publish, beside synced NATS and Redis."""
    row = "server: 100 tasks awaiting"
    return [_ratio(row, "redis:always", found, 2), _ratio(row, "nats:always", found, 20)]


def judge_one(found: Result, _limits: Limits) -> list[Figure]:
    """One publish at a time, beside the raw disk and the raw wire."""
    times, disk, wire = found["latency"], found["raw"], found["loopback"]
    return [
        Figure(
            row="server: one synced publish at a time, p50",
            value=times["p50"],
            unit="s",
            target=disk["p50"] + wire["p50"] + ABOVE_RAW_S,
            is_at_most=True,
            raw=f"disk p50 {duration(disk['p50'])}, loopback {duration(wire['p50'])}",
            note=f"p99 {duration(times['p99'])}, worst {duration(times['worst'])}",
        )
    ]


def _rate(row: str, target: float) -> Judge:
    def judge(found: Result, _limits: Limits) -> list[Figure]:
        memory = f"server {size(found['server_resident_bytes'])}"
        return [
            Figure(
                row=row,
                value=found["messages_per_s"],
                unit="/s",
                target=target,
                note=f"{number(found['messages'])} messages, {memory}",
            )
        ]

    return judge


judge_ndjson: Final = _rate("REST: NDJSON in bulk", 150_000)
judge_lines: Final = _rate("line protocol: pub, pipelined", 50_000)
_judge_rest: Final = _rate("REST: one message a request, pulled and acked by 100", 8_000)


def judge_rest(found: Result, limits: Limits) -> list[Figure]:
    """Single publishes and pulls of 100 over HTTP; each message came once."""
    count = found["lost"] + found["repeated"]
    return [*_judge_rest(found, limits), nothing_lost("REST: lost, repeated", count)]


def judge_connections(found: Result, _limits: Limits) -> list[Figure]:
    """Very many connections and topics."""
    row = f"{number(found['connections'])} connections, {number(found['topics'])} topics"
    times = found["latency"]
    return [
        Figure(
            row=f"{row}: memory of the server",
            value=found["server_resident_bytes"],
            unit="bytes",
            target=GIGABYTE,
            is_at_most=True,
            note=f"opened in {duration(found['open_s'])}; publish → deliver p50 "
            f"{duration(times['p50'])}, p99 {duration(times['p99'])}",
        ),
        nothing_lost(f"{row}: lost", found["lost"]),
    ]


ROWS: Final = (
    Row("net-end-to-end", "net-end-to-end", {"batch": 100}, judge_end_to_end),
    Row("net-tasks", "net-tasks", {"callers": 100}, judge_tasks),
    Row("net-one", "net-one", {}, judge_one),
    Row("net-rest", "net-rest", {}, judge_rest),
    Row("net-ndjson", "net-ndjson", {}, judge_ndjson),
    Row("net-lines", "net-lines", {}, judge_lines),
    Row("net-connections", "net-connections", {}, judge_connections),
)
