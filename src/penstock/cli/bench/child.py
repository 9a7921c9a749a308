"""A measurement in a process of its own, so that one never disturbs or flatters the next.

The plan goes in as JSON, the result comes out as JSON on standard output.
"""

import importlib
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import msgspec

from penstock.cli.bench.plan import Plan
from penstock.vocabulary.errors import PenstockError, catalogue

FUNCTIONS: Final = {
    "publish": "publish:publish",
    "callers": "publish:callers",
    "consume": "deliver:consume",
    "end-to-end": "deliver:end_to_end",
    "shared": "flow:shared",
    "key-shared": "flow:key_shared",
    "multicast": "flow:multicast",
    "priorities": "flow:priorities",
    "ids": "ids:publish",
    "ids-memory": "ids:memory",
    "transactions": "transactions:transactions",
    "reader-fill": "reading:fill",
    "reader-read": "reading:read",
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
    "load-publish": "load:publish",
    "load-consume": "load:consume",
    "load-end-to-end": "load:end_to_end",
    "load-callers": "load:callers",
    "load-one": "load:one",
    "load-latency": "load:latency",
    "net-rest": "protocols:rest",
    "net-ndjson": "protocols:ndjson",
    "net-lines": "protocols:lines",
    "net-connections": "crowd:connections",
    "feed-stuck": "offenders:feed",
}
"""What a child can measure: a name, and the function in this package."""

TICK_S: Final = 0.2


class Failed(PenstockError):
    """A measurement did not come to an end; the text is its last words."""

    code = "bench-failed"


def start(name: str, plan: Plan) -> subprocess.Popen[bytes]:
    """Starts a measurement and returns its process, which the caller must end."""
    return subprocess.Popen(  # noqa: S603 - our own module
        [
            sys.executable,
            "-m",
            "penstock.cli.bench.child",
            name,
            msgspec.json.encode(plan).decode(),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def run(name: str, plan: Plan, tick: Callable[[], None] | None = None) -> dict[str, Any]:
    """Measures in a child and returns its figures. Raises Failed, and what the child met."""
    with start(name, plan) as process:
        try:
            answer, words = _listen(process, tick or _nothing)
        finally:
            process.kill()
    if process.returncode:
        last = words.decode(errors="replace").strip().splitlines() or ["no word"]
        raise _met(last[-1]) or Failed(f"the measurement {name!r} ended early: {last[-1]}")
    found: dict[str, Any] = msgspec.json.decode(answer.splitlines()[-1])
    return found


class _Told(msgspec.Struct):
    """An error of ours, as a child tells it in its last line."""

    code: str
    text: str


def _met(line: str) -> PenstockError | None:
    """The error a child met, such as a broker that cannot be reached."""
    with suppress(msgspec.DecodeError):
        told = msgspec.json.decode(line, type=_Told)
        return catalogue().get(told.code, Failed)(told.text)
    return None


def _listen(process: subprocess.Popen[bytes], tick: Callable[[], None]) -> tuple[bytes, bytes]:
    while True:
        tick()
        with suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=TICK_S)


def _nothing() -> None:
    """Nobody watches."""


def main(name: str, plan: Plan) -> int:
    """Runs one measurement in this process."""
    module, _, function = FUNCTIONS[name].partition(":")
    measure = getattr(importlib.import_module(f"penstock.cli.bench.{module}"), function)
    try:
        print(msgspec.json.encode(measure(plan)).decode(), flush=True)
    except KeyboardInterrupt:
        return 130
    except PenstockError as error:
        print(msgspec.json.encode(_Told(error.code, error.text)).decode(), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], msgspec.json.decode(sys.argv[2], type=Plan)))
