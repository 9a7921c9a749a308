"""A measurement in a process of its own, so that one never disturbs or flatters the next.

The plan goes in as JSON on standard input, the result comes out as JSON on standard output.
"""

import importlib
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from penstock.cli.bench.plan import Plan
from penstock.vocabulary.errors import PenstockError

FUNCTIONS: Final = {
    "publish": "publish:publish",
    "callers": "publish:callers",
    "consume": "deliver:consume",
    "end-to-end": "deliver:end_to_end",
    "latency": "latency:latency",
    "latency-busy": "latency:busy",
    "unacked": "memory:unacked",
    "backlog": "memory:backlog",
    "topics": "topics:build",
    "fill": "recovery:fill",
    "fill-on": "recovery:fill_on",
    "reopen": "recovery:reopen",
    "keep": "compaction:keep",
    "collect": "compaction:collect",
}
"""What a child can measure: a name, and the function in this package."""

TICK_S: Final = 0.2


class Failed(PenstockError):
    """A measurement did not come to an end; the text is its last words."""

    code = "bench-failed"


def start(name: str, plan: Plan) -> subprocess.Popen[bytes]:
    """Starts a measurement and returns its process."""
    process = subprocess.Popen(  # noqa: S603 - our own module
        [sys.executable, "-m", "penstock.cli.bench.child", name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    process.stdin.write(msgspec.json.encode(plan))
    process.stdin.close()
    return process


def run(name: str, plan: Plan, tick: Callable[[], None] | None = None) -> dict[str, Any]:
    """Measures in a child and returns its figures. Raises Failed."""
    process = start(name, plan)
    try:
        while tick is not None and process.poll() is None:
            tick()
            time.sleep(TICK_S)
        assert process.stdout is not None
        assert process.stderr is not None
        answer, words = process.stdout.read(), process.stderr.read()
        if process.wait() != 0:
            last = words.decode(errors="replace").strip().splitlines() or ["no word"]
            raise Failed(f"the measurement {name!r} ended early: {last[-1]}")
        found: dict[str, Any] = msgspec.json.decode(answer.splitlines()[-1])
        return found
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def main(name: str) -> int:
    """Runs one measurement in this process."""
    plan = msgspec.json.decode(sys.stdin.buffer.read(), type=Plan)
    module, _, function = FUNCTIONS[name].partition(":")
    measure = getattr(importlib.import_module(f"penstock.cli.bench.{module}"), function)
    try:
        print(msgspec.json.encode(measure(plan)).decode(), flush=True)
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
