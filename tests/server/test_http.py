"""The listener: addresses, origins, draining, stopping; and clients nobody here wrote."""

import asyncio
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from typing import Any

import pytest

from penstock.broker.broker import Broker
from penstock.journal.memory import MemoryDisk
from penstock.server.http import HttpListener, HttpSettings
from penstock.server.listening import Listener
from tests.server.http_server import (
    BASE,
    PATIENCE_S,
    PLACE,
    Server,
    ask_on,
    read_answers,
    serving,
    wait_for,
)


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as found:
        yield found


def test_a_listener_is_a_listener() -> None:
    broker = Broker.open(MemoryDisk())
    listener: Listener = HttpListener(broker, "127.0.0.1", 0)
    assert (listener.name, listener.address) == ("http", "127.0.0.1:0")
    asyncio.run(_start_and_stop(listener))
    broker.close()


async def _start_and_stop(listener: Listener) -> None:
    listener.drain()  # nothing to drain yet
    await listener.stop()
    await listener.start()
    assert int(listener.address.rpartition(":")[2]) > 0
    await listener.stop()
    await listener.stop()


def test_an_address_in_use_is_an_error(server: Server) -> None:
    async def start() -> None:
        await HttpListener(server.broker, "127.0.0.1", server.port).start()

    with pytest.raises(OSError, match="in use"):
        server.call(start())


def test_draining_answers_what_is_asked_and_ends_the_connection(server: Server) -> None:
    with server.raw() as plain:
        plain.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
        assert read_answers(plain, 1)[0].status == 200
        plain.sendall(
            b"POST /v1/topics/t/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nhel"
        )
        (connection,) = server.listener.connections
        wait_for(lambda: connection.body_since)
        server.loop.call_soon_threadsafe(server.listener.drain)
        wait_for(lambda: server.listener.is_draining)
        plain.sendall(b"lo")
        answers = read_answers(plain, 2)
    assert [(answer.status, answer.headers["connection"]) for answer in answers] == [(200, "close")]


def test_what_was_pulled_is_settled_while_draining_and_nothing_new_begins(server: Server) -> None:
    server.put(PLACE)
    for body in (b"a", b"b", b"c"):
        server.post(f"{BASE}/messages", body)
    with closing(HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)) as kept:
        pulled = ask_on(kept, "POST", f"{PLACE}/pull", {"max": 3}).json()["messages"]
        tokens = [[message["token"]] for message in pulled]
        server.broker.drain()
        server.loop.call_soon_threadsafe(server.listener.drain)
        answer = ask_on(kept, "POST", f"{PLACE}/ack", {"tokens": tokens[0]})
        assert (answer.json(), answer.headers["connection"]) == ({"acked": 1}, "close")
    later = {"tokens": tokens[1], "seconds": 60}
    assert server.post(f"{PLACE}/extend", later).json() == {"extended": 1}
    assert server.post(f"{PLACE}/nack", {"tokens": tokens[1]}).json() == {"nacked": 1}
    for path in (f"{PLACE}/pull", f"{BASE}/messages"):
        answer = server.post(path)
        assert (answer.status, answer.json()["code"]) == (503, "draining")
        assert answer.headers["retry-after"] == "1"
        assert answer.headers["content-type"] == "application/problem+json"
    assert server.get("/healthz").status == 200
    answer = server.get("/readyz")
    assert (answer.status, answer.json()["code"]) == (503, "not-ready")
    assert server.post(f"{PLACE}/ack", {"tokens": tokens[2]}).json() == {"acked": 1}


def test_requests_that_came_together_are_all_answered_while_draining(server: Server) -> None:
    one = b"POST /v1/topics/t/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\nx"
    health = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
    with server.raw() as plain:
        plain.sendall(one)
        assert read_answers(plain, 1)[0].status == 200
        server.loop.call_soon_threadsafe(server.listener.drain)
        plain.sendall(one * 3 + health * 2)
        answers = read_answers(plain, 5)
    # Publishes are answered later than health is, and the first answer that is alone ends it.
    assert [answer.status for answer in answers][:4] == [200] * 4
    assert [answer.headers.get("connection") for answer in answers][:3] == [None] * 3
    assert answers[-1].headers["connection"] == "close"


def test_a_stop_sends_the_answers_that_are_under_way(server: Server) -> None:
    with server.raw() as plain:
        plain.sendall(
            b"POST /v1/topics/t/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\nx"
        )
        wait_for(lambda: server.listener.requests)
        server.call(server.listener.stop())
        (answer,) = read_answers(plain, 2)
    assert answer.status == 200
    with pytest.raises(OSError):  # noqa: PT011 - refused, or reset, as the system likes
        server.raw()


@pytest.mark.parametrize(
    ("origin", "status"),
    [("http://evil.example", 403), ("null", 403), (None, 200), ("http://127.0.0.1:{port}", 200)],
)
def test_pages_of_other_sites_are_not_let_in(
    server: Server, origin: str | None, status: int
) -> None:
    headers = {} if origin is None else {"origin": origin.format(port=server.port)}
    answer = server.post(f"{BASE}/messages", b"x", **headers)
    assert answer.status == status
    assert "access-control-allow-origin" not in answer.headers


def test_a_page_that_points_its_name_at_this_machine_is_not_let_in(server: Server) -> None:
    evil = f"evil.example:{server.port}"
    answer = server.post(f"{BASE}/messages", b"x", host=evil, origin=f"http://{evil}")
    assert (answer.status, answer.json()["code"]) == (403, "origin-not-allowed")
    answer = server.get("/v1/topics", host=evil)
    assert (answer.status, answer.json()["code"]) == (403, "origin-not-allowed")
    assert "not known as 'evil.example'" in answer.json()["detail"]
    own = f"localhost:{server.port}"
    assert server.post(f"{BASE}/messages", b"x", host=own, origin=f"http://{own}").status == 200


def test_other_origins_after_a_reload_hold_for_known_heads(server: Server) -> None:
    named = b"GET /v1/topics HTTP/1.1\r\nhost: penstock.example\r\n\r\n"
    site = HttpSettings(origins=("http://penstock.example",))
    for settings, status in ((site, 200), (site, 200), (HttpSettings(), 403)):
        server.loop.call_soon_threadsafe(server.listener.change, settings)
        with server.raw() as plain:
            plain.sendall(named)
            assert read_answers(plain, 1)[0].status == status


def test_pages_of_allowed_sites_are_let_in_and_told_so() -> None:
    site = "https://app.example"
    with serving(settings=HttpSettings(origins=(site,))) as server:
        answer = server.post(f"{BASE}/messages", b"x", origin=site)
        assert answer.headers["access-control-allow-origin"] == site
        asked = {"origin": site, "access-control-request-headers": "penstock-key"}
        answer = server.ask("OPTIONS", f"{BASE}/messages", None, asked)
        assert answer.status == 204
        assert answer.headers["access-control-allow-headers"] == "penstock-key"
        assert "POST" in answer.headers["access-control-allow-methods"]
        assert server.post(f"{BASE}/messages", b"x", origin="https://b.example").status == 403


def test_stopping_lets_go_of_every_consumer() -> None:
    broker = Broker.open(MemoryDisk())
    with serving(broker) as server:
        server.put(PLACE)
        server.pull(consumer="c")
        assert broker.stats()["consumers"] == 1
    assert broker.stats()["consumers"] == 0
    broker.close()


def test_many_connections_are_served_at_once(server: Server) -> None:
    plains = [server.raw() for _ in range(100)]
    for plain in plains:
        plain.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
    assert all(read_answers(plain, 1)[0].status == 200 for plain in plains)
    for plain in plains:
        plain.close()
    end = time.monotonic() + PATIENCE_S
    while server.listener.connections:
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_takes_a_message_all_the_way(server: Server) -> None:
    base = f"http://127.0.0.1:{server.port}{BASE}"

    def curl(*arguments: str) -> Any:
        command = ["curl", "-sS", "--fail-with-body", "--max-time", str(PATIENCE_S), *arguments]
        done = subprocess.run(command, capture_output=True, check=True)
        return json.loads(done.stdout)

    curl("-X", "PUT", f"{base}/subscriptions/s")
    assert curl("-d", "hello", f"{base}/messages")["offset"] == 0
    found = curl("-X", "POST", f"{base}/subscriptions/s/pull?wait_s=5")
    (message,) = found["messages"]
    assert message["body"] == "hello"
    assert "headers" not in message
    tokens = json.dumps({"tokens": [message["token"]]})
    json_type = "content-type: application/json"
    acked = curl("-H", json_type, "-d", tokens, f"{base}/subscriptions/s/ack")
    assert acked == {"acked": 1}


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_sends_a_large_body_after_asking(server: Server) -> None:
    url = f"http://127.0.0.1:{server.port}{BASE}/messages"
    command = ["curl", "-sS", "--max-time", str(PATIENCE_S), "--data-binary", "@-", url]
    command += ["-H", "expect: 100-continue"]
    done = subprocess.run(command, input=b"x" * 1_000_000, capture_output=True, check=True)
    assert json.loads(done.stdout)["offset"] == 0
