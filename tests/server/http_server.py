"""A listener for tests: real sockets, a loop in a thread of its own, a broker in memory."""

import asyncio
import http.client
import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any, NamedTuple
from urllib.parse import quote

from penstock.broker.broker import Broker
from penstock.journal.memory import MemoryDisk
from penstock.server.http import HttpListener, HttpSettings

PATIENCE_S = 30
PATIENT = HttpSettings(head_s=60, write_s=60, idle_s=60)
"""Only what a test is about ends soon, so that a busy machine ends nothing else."""
BASE = "/v1/topics/t"
PLACE = BASE + "/subscriptions/s"


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Server:
    """A running listener and how to talk to it."""

    def __init__(self, broker: Broker, listener: HttpListener, loop: Any) -> None:
        self.broker = broker
        self.listener = listener
        self.loop = loop
        self.port = listener.port

    def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Answer:
        """One request on a connection of its own; a dict or list is sent as JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            return ask_on(connection, method, path, body, headers)
        finally:
            connection.close()

    def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        """POSTs; header names with underscores for hyphens."""
        return self.ask("POST", path, body, {k.replace("_", "-"): v for k, v in headers.items()})

    def put(self, path: str, body: Any = None) -> Answer:
        return self.ask("PUT", path, body)

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, None, {k.replace("_", "-"): v for k, v in headers.items()})

    def pull(self, place: str = PLACE, **wish: Any) -> list[dict[str, Any]]:
        """The messages of a pull that must succeed."""
        answer = self.post(f"{place}/pull", wish)
        assert answer.status == 200, answer.body
        found: list[dict[str, Any]] = answer.json()["messages"]
        return found

    def call(self, work: Any) -> Any:
        """Runs a coroutine on the listener's loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE_S)

    def raw(self) -> socket.socket:
        """A bare connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)


def ask_on(
    connection: http.client.HTTPConnection, method: str, path: str, body: Any = None,
    headers: dict[str, str] | None = None,
) -> Answer:  # fmt: skip
    headers = dict(headers or {})
    if isinstance(body, dict | list):
        body = json.dumps(body)
        headers.setdefault("content-type", "application/json")
    if isinstance(body, str):
        body = body.encode()
    connection.request(method, path, body, headers)
    response = connection.getresponse()
    named = {name.lower(): value for name, value in response.getheaders()}
    return Answer(response.status, named, response.read())


def wait_for(check: Any) -> None:
    """Returns when the check holds."""
    end = time.monotonic() + PATIENCE_S
    while not check():
        assert time.monotonic() < end
        time.sleep(0.01)


def topic_path(topic: str) -> str:
    return "/v1/topics/" + quote(topic, safe="")


def read_answers(plain: socket.socket, count: int) -> list[Answer]:
    """So many answers from a bare connection; fewer when it ends before."""
    stream = plain.makefile("rb")
    found: list[Answer] = []
    while len(found) < count:
        answer = read_answer(stream)
        if answer is None:
            break
        found.append(answer)
    stream.close()
    return found


def read_answer(stream: Any) -> Answer | None:
    line = stream.readline()
    if not line:
        return None
    headers: dict[str, str] = {}
    while (header := stream.readline().strip()) != b"":
        name, _, value = header.decode("latin-1").partition(": ")
        headers[name] = value
    status = int(line.split()[1])
    body = stream.read(int(headers.get("content-length", "0")))
    return Answer(status, headers, body)


@contextmanager
def serving(
    broker: Broker | None = None, settings: HttpSettings | None = None, **more: Any
) -> Iterator[Server]:
    """A listener on a free port; the broker is closed with it unless it was given."""
    own = Broker.open(MemoryDisk()) if broker is None else broker
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, name="http-test")
    thread.start()

    async def start() -> HttpListener:
        listener = HttpListener(own, "127.0.0.1", 0, settings or PATIENT, **more)
        await listener.start()
        return listener

    listener = asyncio.run_coroutine_threadsafe(start(), loop).result(PATIENCE_S)
    try:
        yield Server(own, listener, loop)
    finally:
        asyncio.run_coroutine_threadsafe(listener.stop(), loop).result(PATIENCE_S)
        asyncio.run_coroutine_threadsafe(loop.shutdown_default_executor(), loop).result(PATIENCE_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE_S)
        loop.close()
        if broker is None:
            own.close()
