"""The rows of the suite about the server: it is started here, beside those it is compared with."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from penstock.cli.bench import child, compare, places, servers
from penstock.cli.bench.places import SERVE, OurServer
from penstock.cli.bench.plan import Plan

Tick = Callable[[], None] | None

COMPARED: Final = {
    "net-end-to-end": ("end-to-end", ("nats:", "redis:")),
    "net-tasks": ("callers", ("nats:always", "redis:always")),
    "net-one": ("one", ()),
}
"""Rows that are work for every side: the mode, and whom we are compared with."""
PORTS: Final = {"net-rest": "http_port", "net-ndjson": "http_port", "net-lines": "line_port"}
"""Rows that speak another protocol, and its port."""
CONNECTIONS: Final = "net-connections"
MODES: Final = (*COMPARED, *PORTS, CONNECTIONS)


def measure(mode: str, plan: Plan, tick: Tick = None) -> dict[str, Any]:
    """The figures of one row."""
    folder = Path(plan.folder)
    if mode in COMPARED:
        work, others = COMPARED[mode]
        return _compared(work, others, msgspec.structs.replace(plan, in_flight=0), tick)
    with servers.running(lambda _port: OurServer(folder / "ours")) as server:
        assert isinstance(server, OurServer)
        port = getattr(server, PORTS[mode]) if mode in PORTS else server.port
        scheme = "" if mode in PORTS else "penstock://"
        asked = msgspec.structs.replace(plan, server=f"{scheme}127.0.0.1:{port}")
        most = server.resident_bytes()

        def look() -> None:
            nonlocal most
            most = max(most, server.resident_bytes())
            if tick is not None:
                tick()

        found = child.run(mode, asked, look)
        return found | {"server_resident_bytes": max(most, server.resident_bytes())}


def _compared(work: str, others: Sequence[str], plan: Plan, tick: Tick) -> dict[str, Any]:
    """Us beside the others; those that cannot be had are named."""
    there = [name for name in others if _is_there(name)]
    rounds = 1 if plan.is_quick or not there else compare.ROUNDS
    turns = list(compare.run(work, [SERVE, *there], plan, rounds, tick))
    rows = compare.standings(work, turns)
    return {
        **next(turn.found for turn in reversed(turns) if turn.name == SERVE),
        "messages_per_s" if work != "one" else "p50": rows[0].value,
        "ratios": {row.name: row.ratio for row in rows[1:]},
        "values": {row.name: row.value for row in rows},
        "absent": [name for name in others if name not in there],
        "lost": sum(row.lost for row in rows if row.name == SERVE),
        "lost_by_others": {row.name: row.lost for row in rows[1:]},
    }


def _is_there(name: str) -> bool:
    assert name in places.STARTED
    scheme = name.partition(":")[0]
    try:
        servers.program_of(scheme, f"{scheme}-server")
    except servers.Missing:
        return False
    return True
