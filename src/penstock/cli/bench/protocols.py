"""How fast the protocols for everybody are: REST one by one, NDJSON in bulk, and lines.

The server is one process, this one is every client. The plan's `server` is `host:port` of the
protocol that is measured.
"""

import asyncio
import time
from typing import Any, Final

import msgspec
import uvloop

from penstock.cli.bench import measure
from penstock.cli.bench.http_link import HttpLink, head
from penstock.cli.bench.load import AHEAD_S
from penstock.cli.bench.plan import SUBSCRIPTION, TOPIC, Budget, Plan
from penstock.cli.bench.publish import rates
from penstock.vocabulary.errors import PenstockError

REST_TOPIC: Final = f"{TOPIC}-rest"
BULK_TOPIC: Final = f"{TOPIC}-bulk"
LINE_TOPIC: Final = f"{TOPIC}-lines"
LINKS: Final = 32
"""HTTP connections that publish."""
PIPELINED: Final = 8
"""Publish requests that one connection sends before the first is answered."""
PULLERS: Final = 4
PULL: Final = 100
AHEAD_MAX: Final = 5_000
BULK: Final = 1_000
"""Lines in one NDJSON request."""
BULK_LINKS: Final = 4
DEPTH: Final = 1_000
"""Lines that may be sent and not answered."""
LINE_LINKS: Final = 4
PATIENCE_S: Final = 60.0
JSON: Final = "application/json"
OK: Final = (200, 201, 204)


class Refused(PenstockError):
    """The server refused a request of the measurement."""

    code = "bench-refused"


def rest(plan: Plan) -> dict[str, Any]:
    """One message in each request; pulled and acked 100 at a time."""
    return uvloop.run(Rest(plan).run())


def ndjson(plan: Plan) -> dict[str, Any]:
    """Bulk requests, several at once; the clock stops when the last is confirmed."""
    return uvloop.run(_ndjson(plan))


def lines(plan: Plan) -> dict[str, Any]:
    """`pub` after `pub`, without waiting for each `ok`; any other answer ends it."""
    return uvloop.run(_lines(plan))


def _address(plan: Plan) -> tuple[str, int]:
    host, _, port = plan.server.rpartition(":")
    return host, int(port)


async def _ask(link: HttpLink, request: bytes, body: bytes = b"") -> bytes:
    return _check(*await link.request(request, body))


def _check(status: int, answer: bytes) -> bytes:
    if status not in OK:
        raise Refused(f"the server answered {status}: {answer[:200].decode(errors='replace')}")
    return answer


class Rest:
    """Publishers and pullers on connections of their own."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._sent = self._taken = 0
        self._is_over = False

    async def run(self) -> dict[str, Any]:
        """Publishes for the time of the plan and takes everything."""
        place = f"/v1/topics/{REST_TOPIC}/subscriptions/{SUBSCRIPTION}"
        links = [await HttpLink.open(*_address(self._plan)) for _ in range(LINKS + PULLERS)]
        try:
            await _ask(links[0], head("PUT", f"/v1/topics/{REST_TOPIC}", JSON), b"{}")
            await _ask(links[0], head("PUT", place, JSON), b"{}")
            budget = Budget(self._plan.seconds, self._plan.messages)
            began = time.perf_counter()
            pulling = [asyncio.create_task(self._pull(link, place)) for link in links[LINKS:]]
            try:
                await asyncio.gather(*(self._publish(link, budget) for link in links[:LINKS]))
                self._is_over = True
                await asyncio.wait_for(asyncio.gather(*pulling), PATIENCE_S)
            finally:
                for task in pulling:
                    task.cancel()
            elapsed = time.perf_counter() - began
        finally:
            for link in links:
                link.close()
        lost = self._sent - self._taken
        found = {"published": self._sent, "lost": max(0, lost), "repeated": max(0, -lost)}
        return rates(self._plan, self._taken, elapsed) | found

    async def _publish(self, link: HttpLink, budget: Budget) -> None:
        request = head("POST", f"/v1/topics/{REST_TOPIC}/messages")
        body = measure.bodies(1, self._plan.size)[0]
        while budget.take(PIPELINED):
            self._sent += PIPELINED
            for answer in link.requests(request, body, PIPELINED):
                _check(*await answer)
            while self._sent - self._taken > AHEAD_MAX:  # noqa: ASYNC110 - an event costs each
                await asyncio.sleep(AHEAD_S)

    async def _pull(self, link: HttpLink, place: str) -> None:
        pull = head("POST", f"{place}/pull", JSON)
        ack = head("POST", f"{place}/ack", JSON)
        asked = msgspec.json.encode({"max": PULL, "wait_s": 0.5})
        while not (self._is_over and self._taken >= self._sent):
            answer = msgspec.json.decode(await _ask(link, pull, asked))
            tokens = [message["token"] for message in answer["messages"]]
            if tokens:
                await _ask(link, ack, msgspec.json.encode({"tokens": tokens}))
                self._taken += len(tokens)


async def _ndjson(plan: Plan) -> dict[str, Any]:
    text = "x" * plan.size
    bulk = b"".join(msgspec.json.encode({"body": text}) + b"\n" for _ in range(BULK))
    request = head("POST", f"/v1/topics/{BULK_TOPIC}/messages", "application/x-ndjson")
    links = [await HttpLink.open(*_address(plan)) for _ in range(BULK_LINKS)]
    budget = Budget(plan.seconds, plan.messages)
    done = 0

    async def publish(link: HttpLink) -> None:
        nonlocal done
        while budget.take(BULK):
            await _ask(link, request, bulk)
            done += BULK

    try:
        await _ask(links[0], head("PUT", f"/v1/topics/{BULK_TOPIC}", JSON), b"{}")
        began = time.perf_counter()
        await asyncio.gather(*(publish(link) for link in links))
        elapsed = time.perf_counter() - began
        answer = await _ask(links[0], head("GET", f"/v1/topics/{BULK_TOPIC}"))
    finally:
        for link in links:
            link.close()
    return rates(plan, done, elapsed) | {"topic": msgspec.json.decode(answer)}


async def _lines(plan: Plan) -> dict[str, Any]:
    budget = Budget(plan.seconds, plan.messages)
    began = time.perf_counter()
    done = await asyncio.gather(*(_line_client(i, plan, budget) for i in range(LINE_LINKS)))
    return rates(plan, sum(done), time.perf_counter() - began)


async def _line_client(number: int, plan: Plan, budget: Budget) -> int:
    """Sends before earlier lines are answered; returns how many were answered with `ok`."""
    reader, writer = await asyncio.open_connection(*_address(plan))
    step = DEPTH // 2
    try:
        await reader.readline()  # the greeting
        sent = answered = 0
        rest = b""
        while True:
            while sent - answered <= step and budget.take(step):
                writer.write(b"".join(_pub(number, sent + i, plan) for i in range(step)))
                sent += step
            if answered == sent:
                return answered
            data = await asyncio.wait_for(reader.read(1 << 20), PATIENCE_S)
            whole, end, rest = (rest + data).rpartition(b"\n")
            answered += _confirmed(whole + end)
            if not data:
                raise Refused(f"the server hung up after {answered} of {sent} lines")
    finally:
        writer.close()
        await writer.wait_closed()


def _confirmed(lines: bytes) -> int:
    """How many lines there are, all of them `ok`. Raises Refused with the first that is not."""
    count = lines.count(b"\n")
    if (b"\n" + lines).count(b"\nok ") != count:
        bad = next(line for line in lines.splitlines() if not line.startswith(b"ok "))
        raise Refused(f"the server answered {bad.decode(errors='replace')!r}")
    return count


def _pub(client: int, number: int, plan: Plan) -> bytes:
    return b'pub %b {"id":"%d-%d","priority":1,"msg":"%b"}\n' % (
        LINE_TOPIC.encode(),
        client,
        number,
        b"x" * plan.size,
    )
