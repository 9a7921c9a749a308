"""`penstock bench hostile`: what bad clients do to good ones.

A good client publishes and consumes at a fixed rate, alone and beside each offender, in turns. What
counts is its p99, the memory of the server, and that the server got rid of the offender, or holds
it off, and says so in its log. One p99 of a whole run differs by a factor of ten between two runs
of the same work on a shared machine: the p99 of the median second is compared, over all turns.
"""

import signal
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any, Final

import msgspec

from penstock.cli.bench import child, command, machine, offenders, servers
from penstock.cli.bench.offenders import Order
from penstock.cli.bench.places import OurServer
from penstock.cli.bench.plan import Plan
from penstock.cli.output import BOLD, GREEN, RED, Output, duration, size
from penstock.cli.progress import Progress

NAMES: Final = ("stuck", *offenders.BEHAVIOURS)
ABOUT: Final = {
    "stuck": "a consumer that stops reading",
    "slow": "clients that send one byte a second",
    "huge": "clients that declare 2 GiB",
    "idle": "connections without a word",
    "garbage": "clients that send garbage",
    "half-open": "clients that begin and never end",
}
RATE: Final = 500.0
RATIO_MAX: Final = 2.0
FLOOR_S: Final = 0.001
"""A p99 below this is as good as alone: what is measured there is the mood of the machine."""
GROWTH_MAX: Final = 256_000_000
"""Bytes the server may grow by under one offender."""
LONG_S: Final = 12.0
"""Longer than the server's patience with a client that does not read."""
SHORT_S: Final = 1.5
TURNS: Final = 3
ENDING_S: Final = 20.0
QUICK_SETTINGS: Final = (
    "[frames]\nwrite_s = 1.0\nhandshake_s = 0.5\n[http]\nwrite_s = 1.0\nhead_s = 0.5\n"
    "[lines]\nwrite_stall_s = 1.0\nline_s = 1.0\n"
)
"""A server with less patience, for a short run."""

Tick = Callable[[], None] | None


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """What one offender did."""

    name: str
    p99: float
    alone_p99: float
    resident_before: int
    resident_after: int
    opened: int
    ended: int
    reasons: list[str]
    """Lines of the server's log about it, the first few."""
    lost: int

    @property
    def ratio(self) -> float:
        """How many times as slow the good client was."""
        return max(self.p99, FLOOR_S) / max(self.alone_p99, FLOOR_S)

    @property
    def problems(self) -> list[str]:
        """What was not as it should be."""
        found = []
        if self.ratio > RATIO_MAX:
            found.append(f"p99 {self.ratio:.1f} × that of a good client alone")
        if self.resident_after - self.resident_before > GROWTH_MAX:
            found.append(f"memory grew by {size(self.resident_after - self.resident_before)}")
        if self.lost:
            found.append(f"{self.lost} messages of the good client lost")
        if not self.reasons:
            found.append("the server's log says nothing about it")
        return found


def run(arguments: Namespace, output: Output) -> int:
    """Starts a server, measures, and judges each offender."""
    with command.scratch(arguments) as folder:
        assert folder is not None
        plan = command.plan_of(arguments, folder)
        where = machine.describe(folder)
        with Progress(output, "measuring", len(NAMES) + 1) as progress:
            cases = []
            for case in measure(plan, progress.draw):
                cases.append(case)
                progress.add()
    if output.is_json:
        rows = [
            {**msgspec.to_builtins(case), "ratio": case.ratio, "problems": case.problems}
            for case in cases
        ]
        output.document({"machine": where, "is_quick": plan.is_quick, "cases": rows})
    else:
        command.show_machine(output, where, plan)
        _show(output, cases)
    return 1 if any(case.problems for case in cases) else 0


def measure(plan: Plan, tick: Tick = None) -> Iterator[Case]:
    """Every offender on one server, in turns with nobody else; if quick, one turn."""
    folder = Path(plan.folder)
    words: tuple[str, ...] = ()
    if plan.is_quick:
        settings = folder / "hostile.toml"
        settings.write_text(QUICK_SETTINGS, encoding="utf-8")
        words = ("--config", str(settings))
    seconds = SHORT_S if plan.is_quick else max(plan.seconds, LONG_S)
    with servers.running(lambda _port: OurServer(folder / "ours", words)) as server:
        assert isinstance(server, OurServer)
        good = msgspec.structs.replace(
            plan,
            server=server.url,
            seconds=seconds,
            messages=None,
            rate=plan.rate or RATE,
        )
        if plan.is_quick:
            alone = child.run("load-latency", good, tick)
            for name in NAMES:
                yield _turn(name, server, good, alone, tick)
            return
        for name in NAMES:
            turns = []
            for _ in range(TURNS):
                alone = child.run("load-latency", good, tick)
                turns.append(_turn(name, server, good, alone, tick))
            yield together(turns)


def together(turns: list[Case]) -> Case:
    """What an offender did in all of its turns."""
    return Case(
        name=turns[0].name,
        p99=median(turn.p99 for turn in turns),
        alone_p99=median(turn.alone_p99 for turn in turns),
        resident_before=turns[0].resident_before,
        resident_after=max(turn.resident_after for turn in turns),
        opened=sum(turn.opened for turn in turns),
        ended=sum(turn.ended for turn in turns),
        reasons=next((turn.reasons for turn in turns if not turn.reasons), turns[0].reasons),
        lost=sum(turn.lost for turn in turns),
    )


def _turn(
    name: str, server: OurServer, plan: Plan, alone: dict[str, Any], tick: Tick = None
) -> Case:
    order = Order(
        frames=server.port,
        lines=server.line_port,
        http=server.http_port,
        many=offenders.QUICK if plan.is_quick else offenders.MANY,
        seconds=plan.seconds,
    )
    before = server.resident_bytes()
    said = len(server.text_of_log())
    most = before

    def look() -> None:
        nonlocal most
        most = max(most, server.resident_bytes())
        if tick is not None:
            tick()

    with _offending(name, order) as told:
        if name == "stuck":
            child.run("feed-stuck", plan, look)
        found = child.run("load-latency", plan, look)
        _wait_for_a_word(server, said)
    reasons = reasons_in(server.text_of_log()[said:])
    return Case(
        name=name,
        p99=found["delivered_p99"],
        alone_p99=alone["delivered_p99"],
        resident_before=before,
        resident_after=max(most, server.resident_bytes()),
        opened=told.get("opened", 0),
        ended=told.get("ended", 0),
        reasons=reasons,
        lost=found["lost"],
    )


@contextmanager
def _offending(name: str, order: Order) -> Iterator[dict[str, int]]:
    """An offender at work; what it tells in the end is in the dictionary afterwards."""
    told: dict[str, int] = {}
    with subprocess.Popen(  # noqa: S603 - our own module
        [sys.executable, "-m", offenders.__name__, name, msgspec.json.encode(order).decode()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        try:
            if process.stdout.readline() != b"ready\n":
                raise child.Failed(f"the offender {name!r} did not get to work")
            if name == "stuck":
                process.send_signal(signal.SIGSTOP)
            yield told
            if name == "stuck":
                process.send_signal(signal.SIGCONT)
            with suppress(subprocess.TimeoutExpired, msgspec.DecodeError, IndexError):
                answer, _ = process.communicate(timeout=ENDING_S)
                told.update(msgspec.json.decode(answer.splitlines()[-1]))
        finally:
            process.kill()


def _wait_for_a_word(server: OurServer, said: int) -> None:
    """The server may need a moment more than the good client to lose its patience."""
    ends = time.monotonic() + ENDING_S
    while time.monotonic() < ends and not reasons_in(server.text_of_log()[said:]):
        time.sleep(servers.LOOK_S)


def reasons_in(log: str) -> list[str]:
    """What the server says about clients it holds off or lets go, without doubles."""
    marks = ("WARNING", "warning", "does not speak", "refused", "dropped", "let go", "is lost")
    found = [line.strip() for line in log.splitlines() if any(mark in line for mark in marks)]
    return list(dict.fromkeys(found))[:5]


def _show(output: Output, cases: list[Case]) -> None:
    output.say()
    heading = f"{'BESIDE':<36} {'ALONE':>9} {'P99':>9} {'RATIO':>6}  {'MEMORY':>9}  ENDED"
    output.say(output.paint(heading, BOLD))
    for case in cases:
        grown = size(max(0, case.resident_after - case.resident_before))
        verdict = output.paint("MISS", RED) if case.problems else output.paint("PASS", GREEN)
        output.say(
            f"{ABOUT[case.name]:<36} {duration(case.alone_p99):>9} {duration(case.p99):>9} "
            f"{case.ratio:>5.1f}×  +{grown:>8}  {case.ended} of {case.opened}  {verdict}"
        )
        for problem in case.problems:
            output.say(f"    {problem}")
        for reason in case.reasons[:1]:
            output.say(f"    log: {reason[:160]}")
