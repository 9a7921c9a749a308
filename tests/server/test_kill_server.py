"""KILL a server under load, again and again: nothing confirmed is lost, no unit commits twice.

Publishers, consumers at QoS 1 and a chain of units at QoS 2 run in this process and know nothing of
the deaths; they only see their calls take longer.
"""

import asyncio
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from penstock.client.client import Client, connect
from penstock.client.deliveries import Deliveries
from penstock.vocabulary.errors import AckRefused
from tests.tally import Tally

ROOT = Path(__file__).parents[2]
ALONE = Path(__file__).with_name("alone.py")
KILLS_SHORT = 40
KILLS_LONG = 200
REATTACH_S = 0.2
END_S_MAX = 60.0
AHEAD_MAX = 3_000
"""Publishers wait for the chain of units, which takes one message at a time."""


class Server:
    """The process that serves, and the one that ends it."""

    def __init__(self, folder: Path) -> None:
        paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        self._process = subprocess.Popen(
            [sys.executable, str(ALONE), str(folder), "0", str(REATTACH_S)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
            env={**os.environ, "PYTHONPATH": paths},
        )  # fmt: skip
        self.port = 0

    def start(self) -> None:
        self._say("start")
        answer = self._hear()
        assert answer.startswith("ready "), answer
        self.port = int(answer.split()[1])

    def kill(self) -> None:
        self._say("kill")
        assert self._hear() == "killed"

    def _say(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def _hear(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def end(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(END_S_MAX)
        self._process.stdout.close()


class Load:
    """What the clients did and were told."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.confirmed: set[int] = set()
        self.received: Counter[int] = Counter()
        self.committed: set[int] = set()
        self.outputs: dict[int, set[str]] = {}
        """What units stored, and where: a second place is a second commit."""
        self.refused_units = 0
        self.is_ending = False
        self._next = 0

    async def publish(self, client: Client) -> None:
        while not self.is_ending:
            first = self._next
            self._next += 7
            await client.publish("in", b"%d" % first)
            self.confirmed.add(first)
            await client.publish_many("in", [b"%d" % n for n in range(first + 1, first + 7)])
            self.confirmed.update(range(first + 1, first + 7))
            await asyncio.sleep(0)
            if len(self.confirmed) - len(self.outputs) > AHEAD_MAX:
                await asyncio.sleep(0.2)

    async def consume(self, deliveries: Deliveries) -> None:
        async for message in deliveries:
            self.received[int(message.body or b"")] += 1
            message.ack()

    async def chain(self, client: Client, deliveries: Deliveries) -> None:
        async for message in deliveries:
            try:
                async with client.transaction() as unit:
                    unit.publish("out", message.body)
                    unit.ack(message)
                self.committed.add(int(message.body or b""))
            except AckRefused:
                self.refused_units += 1  # it was handed to another meanwhile: nothing is stored

    async def collect(self, deliveries: Deliveries) -> None:
        async for message in deliveries:
            self.outputs.setdefault(int(message.body or b""), set()).add(message.position)
            message.ack()

    async def until_all_came(self) -> None:
        """Or until nothing has come for long: each unit waits for the disk."""
        known, until = 0, time.monotonic() + END_S_MAX
        while time.monotonic() < until:
            if self.confirmed <= self.received.keys() and self.confirmed <= self.outputs.keys():
                return
            came = len(self.received) + len(self.outputs)
            if came > known:
                known, until = came, time.monotonic() + END_S_MAX
            await asyncio.sleep(0.01)


async def run(server: Server, load: Load, kills: int) -> list[float]:
    loop = asyncio.get_running_loop()
    url = f"penstock://127.0.0.1:{server.port}"
    outages: list[float] = []
    async with connect(url) as one, connect(url) as two, connect(url) as three:
        streams = [
            await one.subscribe("in", "count", credit=200),
            await two.subscribe("in", "count", credit=50),
            await three.subscribe("in", "chain", qos=2, credit=20),
            await two.subscribe("in", "chain", qos=2, credit=20),
            await three.subscribe("out", "collect"),
        ]
        publishing = [asyncio.create_task(load.publish(client)) for client in (one, two)]
        tasks: list[asyncio.Task[Any]] = [
            asyncio.create_task(load.consume(streams[0])),
            asyncio.create_task(load.consume(streams[1])),
            asyncio.create_task(load.chain(three, streams[2])),
            asyncio.create_task(load.chain(two, streams[3])),
            asyncio.create_task(load.collect(streams[4])),
        ]
        for _ in range(kills):
            await asyncio.sleep(load.rng.uniform(0.02, 0.4))
            began = time.perf_counter()
            await loop.run_in_executor(None, server.kill)
            await loop.run_in_executor(None, server.start)
            known = len(load.confirmed)
            until = time.monotonic() + END_S_MAX
            while len(load.confirmed) == known and time.monotonic() < until:  # noqa: ASYNC110
                await asyncio.sleep(0.002)
            outages.append(time.perf_counter() - began)
        load.is_ending = True
        await asyncio.gather(*publishing)
        await load.until_all_came()
        await asyncio.sleep(3 * REATTACH_S)  # what would come twice comes now
        for task in tasks:
            assert not task.done() or task.exception() is None, task.exception()
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for stream in streams:
            try:
                await stream.close()
            except AckRefused:
                continue  # those that were handed on while their consumer was away
    return outages


@pytest.mark.parametrize("kills", [KILLS_SHORT, pytest.param(KILLS_LONG, marks=pytest.mark.prove)])
def test_a_server_that_dies_loses_nothing(kills: int, tmp_path: Path, tally: Tally) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    load, server = Load(seed), Server(tmp_path / "store")
    try:
        server.start()
        outages = asyncio.run(run(server, load, kills))
    finally:
        server.end()
    lost = len(load.confirmed - load.received.keys())
    unprocessed = len(load.confirmed - load.outputs.keys())
    twice = sum(1 for places in load.outputs.values() if len(places) > 1)
    invented = len(load.outputs.keys() - load.received.keys())
    again = sum(load.received.values()) - len(load.received)
    outages.sort()
    tally.add(
        "kill-server",
        kills=kills,
        confirmed=len(load.confirmed),
        confirmed_lost=lost,
        units=len(load.committed),
        units_refused=load.refused_units,
        units_twice=twice,
        redelivered=again,
        outage_ms_median=round(outages[len(outages) // 2] * 1000),
        outage_ms_max=round(outages[-1] * 1000),
    )
    problems = {"lost": lost, "unprocessed": unprocessed, "twice": twice, "invented": invented}
    assert not any(problems.values()), f"{problems} seed={seed}"
    assert len(load.confirmed) > kills, f"hardly anything happened, seed={seed}"
