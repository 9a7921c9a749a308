"""KILL: whatever was confirmed before a process died is there after it.

A child process runs a broker on a real folder under load and writes down what was confirmed. It
is killed again and again, at random moments and at marked points, and started again on the same
folder. After every kill the store is held against everything all lives were told.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.broker import Broker, Sink
from penstock.broker.mailbox import DIRECT, Pending
from penstock.journal.disk import FolderDisk
from penstock.journal.verify import Verdict, verify
from penstock.vocabulary.claims import Claim
from tests.crash.kill_book import Book
from tests.crash.kill_child import FAILURE_S_MAX, SETTINGS, SUBSCRIPTIONS, TOPIC
from tests.tally import Tally

ROOT = Path(__file__).parents[2]
CHILD = Path(__file__).with_name("kill_child.py")
KILLS_SHORT = 40
KILLS_LONG = 100
KILLS_MORE = 100
"""How many follow at most, where a slow disk confirms little between two of them."""
CONFIRMED_MIN = 1_000
OPEN_S_MAX = 60.0
DRAIN_S_MAX = 120.0
POINTS = (
    "group-written", "group-synced", "segment-sealed", "segment-opened", "segment-recycled",
    "segment-unlinked", "snapshot-written", "snapshot-counts", "superblock-written",
)  # fmt: skip


class Killer:
    """The parent: starts children, ends them, keeps the book."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.store = folder / "store"
        self.copy = folder / "copy"
        self.history = folder / "history"
        self.history.touch()
        self.book = Book(self.history)

    def live(
        self, *, mark: str = "", seconds: float = 60.0, kill_after_s: float | None = None,
        fail_sync: int = 0, under: tuple[str, ...] = (), trace: Path | None = None,
    ) -> None:  # fmt: skip
        """One life of a child; it ends by itself, at its mark, or when it is killed.

        It lives for so many seconds, counted from the failure that `trace` will tell of, if given.
        """
        plan = {
            "mark": mark, "seconds": seconds, "seed": self.rng.random(), "fail_sync": fail_sync,
            "trace": str(trace or ""), "publishers": self.book.publishers(),
        }  # fmt: skip
        paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        child = subprocess.Popen(
            [
                *under,
                sys.executable,
                str(CHILD),
                str(self.store),
                str(self.history),
                json.dumps(plan),
            ],
            env={**os.environ, "PYTHONPATH": paths},
        )
        try:
            if kill_after_s is not None:
                self._wait_until_open(child)
                self._sleep(child, kill_after_s)
            else:
                child.wait(timeout=OPEN_S_MAX + FAILURE_S_MAX + seconds)
        finally:
            child.kill()
            child.wait()
        self.book.catch_up()
        if child.returncode == -signal.SIGKILL:
            self.book.score.kills += 1
        elif child.returncode != 0:
            self.book.score.problems.append(f"the child ended with {child.returncode}")

    def _wait_until_open(self, child: "subprocess.Popen[bytes]") -> None:
        size = self.history.stat().st_size
        until = time.monotonic() + OPEN_S_MAX
        while self.history.stat().st_size == size and child.poll() is None:
            assert time.monotonic() < until, "the child does not open its store"
            time.sleep(0.005)

    @staticmethod
    def _sleep(child: "subprocess.Popen[bytes]", seconds: float) -> None:
        try:
            child.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return

    def check(self) -> None:
        """Opens a copy of the folder, so that the next child recovers from the kill itself."""
        shutil.rmtree(self.copy, ignore_errors=True)
        shutil.copytree(self.store, self.copy)
        began = time.perf_counter()
        broker = Broker.open(FolderDisk(self.copy), SETTINGS, threads=False)
        self.book.score.recover_ms.append((time.perf_counter() - began) * 1000)
        report = broker.journal.report
        if report.damages or report.notes:
            self.book.score.problems.append(f"a kill looks like damage: {report}")
        self.book.check(broker)
        self.book.score.restarts_ok += 1
        broker.abandon()

    def finish(self) -> None:
        """Drains the store, stops it in good order, and looks at it once more."""
        broker = Broker.open(FolderDisk(self.store), SETTINGS)
        for name in SUBSCRIPTIONS:
            _drain(broker, name)
        waiting = [each["waiting"] + each["leased"] for each in broker.subscriptions(TOPIC)]
        if any(waiting):
            self.book.score.problems.append(f"after draining {waiting} messages wait")
        broker.close()
        disk = FolderDisk(self.store, is_read_only=True)
        if verify(disk).verdict is not Verdict.OK:
            self.book.score.problems.append(str(verify(disk)))
        disk.close()

    def judge(self, tally: Tally, line: str) -> None:
        """Prints the line and fails on anything that must be zero."""
        score = self.book.score
        print(f"\n{score.line()} seed={self.seed}")  # noqa: T201 - the line is the report
        score.tell(tally, line)
        assert not score.problems, "\n".join(score.problems[:20])
        assert (score.lost, score.dup, score.redelivered_after_ack, score.wrong) == (0, 0, 0, 0)


def _drain(broker: Broker, name: str) -> None:
    """Acks everything a subscription still has, with leases that do not end meanwhile."""
    broker.alter_subscription(TOPIC, name, {"lease_s": 600.0})
    slices: list[Any] = []
    sink = Sink(DIRECT, slices.append, lambda _: None)
    consumer = broker.attach(TOPIC, name, None, None, 10_000, 1 << 28, "drain", sink)
    until = time.monotonic() + DRAIN_S_MAX
    while time.monotonic() < until:
        while slices:
            each = slices.pop(0)
            claim = Claim(each.lease_id, each.partition, each.attempt, ((each.start, each.end),))
            assert not broker.ack(consumer, [claim])
        pending = Pending()
        broker.flush(DIRECT, pending)
        pending.wait()
        found = next(s for s in broker.subscriptions(TOPIC) if s["subscription"] == name)
        if not slices and not found["waiting"] + found["leased"] + found["delayed"]:
            break
    pending = Pending()
    broker.detach(consumer, {}, DIRECT, pending)
    pending.wait()


def _kill(killer: Killer, kills: int, tally: Tally) -> int:
    """Kills so often, and more often until enough was confirmed; how often that was."""
    for number in range(kills + KILLS_MORE):
        if number >= kills and killer.book.score.confirmed > CONFIRMED_MIN:
            break
        lives = number + 1
        if number % 2:
            point = POINTS[number // 2 % len(POINTS)]
            killer.live(mark=f"{point}:{killer.rng.randint(1, 4)}", kill_after_s=0.8)
        else:
            killer.live(kill_after_s=killer.rng.uniform(0.0, 0.5))
        killer.check()
    killer.finish()
    killer.judge(tally, "kill")
    return lives


def test_nothing_confirmed_is_lost_by_kills(tmp_path: Path, tally: Tally) -> None:
    killer = Killer(tmp_path, seed=random.randrange(1 << 32))
    lives = _kill(killer, KILLS_SHORT, tally)
    assert killer.book.score.kills == lives >= KILLS_SHORT
    assert killer.book.score.confirmed > CONFIRMED_MIN


@pytest.mark.prove
@pytest.mark.parametrize("_number", range(4))
def test_nothing_confirmed_is_lost_by_many_kills(
    tmp_path: Path, _number: int, tally: Tally
) -> None:
    _kill(Killer(tmp_path, seed=random.randrange(1 << 32)), KILLS_LONG, tally)


# -- syncs that fail -------------------------------------------------------------------------------


def test_nothing_is_confirmed_after_a_failed_sync(tmp_path: Path, tally: Tally) -> None:
    killer = Killer(tmp_path, seed=random.randrange(1 << 32))
    for number in (3, 12, 40, 130):
        killer.live(fail_sync=number, seconds=1.0)
        killer.check()
    killer.live(seconds=0.3)
    killer.check()
    killer.finish()
    assert killer.book.score.failed_operations > 0
    killer.judge(tally, "failed sync")


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize(("call", "number"), [("fdatasync", 3), ("pwritev2", 40)])
def test_nothing_is_confirmed_after_the_kernel_fails_a_sync(
    tmp_path: Path, call: str, number: int, tally: Tally
) -> None:
    killer = Killer(tmp_path, seed=number)
    killer.live(seconds=0.2)
    inject = ("-e", f"trace={call}", "-e", f"inject={call}:error=EIO:when={number}")
    trace = tmp_path / "trace"
    under = ("strace", "-f", "-qq", "-o", str(trace), *inject)
    killer.live(seconds=1.0, under=under, trace=trace)
    assert "EIO" in trace.read_text()
    killer.check()
    killer.live(seconds=0.2)
    killer.check()
    killer.finish()
    killer.judge(tally, "failed sync")
