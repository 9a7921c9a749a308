"""Server-sent events, read as a browser's EventSource reads them."""

import json
import subprocess
import time
from collections.abc import Iterator
from typing import Any, Self

import pytest

from penstock.server.http import HttpSettings
from tests.server.http_server import BASE, PATIENCE_S, PLACE, Server, serving


class EventSource:
    """What the standard says a browser does: fields, dispatch at a blank line, the last id."""

    def __init__(self, server: Server, path: str, **headers: str) -> None:
        self._plain = server.raw()
        lines = [f"GET {path} HTTP/1.1", "host: x", "accept: text/event-stream"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self._plain.sendall("\r\n".join([*lines, "", ""]).encode())
        self._stream = self._plain.makefile("rb")
        self.status = int(self._stream.readline().split()[1])
        self.headers: dict[str, str] = {}
        while (line := self._stream.readline().strip()) != b"":
            name, _, value = line.decode().partition(": ")
            self.headers[name] = value
        self.last_id = ""
        self.retry_ms = 0
        self.comments = 0

    def event(self) -> str | None:
        """The data of the next event; None at the end of the stream."""
        data: list[str] = []
        while line := self._stream.readline():
            text = line.decode().rstrip("\n")
            if not text:
                if data:
                    return "\n".join(data)
                continue
            name, _, value = text.partition(":")
            value = value.removeprefix(" ")
            if not name:
                self.comments += 1
                return ""
            if name == "data":
                data.append(value)
            elif name == "id":
                self.last_id = value
            elif name == "retry":
                self.retry_ms = int(value)
        return None

    def message(self) -> dict[str, Any]:
        """The next event that is not a heartbeat, as JSON."""
        while not (text := self.event()):
            assert text is not None, "the stream ended"
        found: dict[str, Any] = json.loads(text)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()
        self._plain.close()


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as found:
        yield found


def publish(server: Server, *bodies: str, **headers: str) -> None:
    for body in bodies:
        assert server.post(f"{BASE}/messages", body, **headers).status == 200


def test_a_stream_shows_what_comes(server: Server) -> None:
    server.put(BASE)
    with EventSource(server, f"{BASE}/stream") as source:
        assert source.headers["content-type"] == "text/event-stream"
        publish(server, "a", "b")
        assert [source.message()["body"] for _ in "ab"] == ["a", "b"]
        assert source.retry_ms == 1000


def test_a_stream_may_start_at_the_beginning(server: Server) -> None:
    publish(server, *"abc")
    with EventSource(server, f"{BASE}/stream?start=earliest") as source:
        assert [source.message()["body"] for _ in "abc"] == ["a", "b", "c"]


def test_a_stream_goes_on_behind_the_last_event(server: Server) -> None:
    publish(server, *"abc")
    with EventSource(server, f"{BASE}/stream?start=earliest") as source:
        source.message()
        last = source.last_id
    with EventSource(server, f"{BASE}/stream?start=earliest", last_event_id=last) as source:
        assert [source.message()["body"] for _ in "bc"] == ["b", "c"]


def test_a_stream_of_several_partitions_goes_on_in_each(server: Server) -> None:
    server.put(BASE, {"partitions": 3})
    for n in range(30):
        publish(server, str(n), penstock_key=f"k{n}")
    seen: list[str] = []
    last: dict[str, str] = {}
    for count in (7, 11, 12):
        with EventSource(server, f"{BASE}/stream?start=earliest", **last) as source:
            seen += [source.message()["body"] for _ in range(count)]
            last = {"last_event_id": source.last_id}
    assert sorted(map(int, seen)) == list(range(30))


def test_a_place_no_longer_held_becomes_the_lowest_that_is(server: Server) -> None:
    server.put(PLACE)
    publish(server, "a", "b")
    (first,) = server.pull(max=1, wait_s=5)
    server.post(f"{PLACE}/ack", {"tokens": [first["token"]]})
    with EventSource(server, f"{BASE}/stream", last_event_id="0:0") as source:
        assert source.message()["body"] == "b"


def test_looking_deletes_and_holds_nothing(server: Server) -> None:
    server.put(PLACE)
    publish(server, "a")
    with EventSource(server, f"{BASE}/stream?start=earliest") as source:
        source.message()
    row = server.get(PLACE).json()
    assert (row["waiting"], row["acked"]) == (1, 0)
    assert [
        each["subscription"] for each in server.get(f"{BASE}/subscriptions").json()["subscriptions"]
    ] == ["s"]


@pytest.mark.parametrize(
    ("path", "headers"),
    [("?start=earliest&format=cloudevents", {}),
     ("?start=earliest", {"accept": "text/event-stream, application/cloudevents+json"})],
)  # fmt: skip
def test_a_stream_may_be_of_events(server: Server, path: str, headers: dict[str, str]) -> None:
    publish(server, '{\n"n": 1\r\n}', content_type="application/json", penstock_id="i")
    with EventSource(server, f"{BASE}/stream{path}", **headers) as source:
        event = source.message()
    assert (event["specversion"], event["id"], event["data"]) == ("1.0", "i", {"n": 1})


def test_a_quiet_stream_says_that_it_is_alive() -> None:
    with serving(settings=HttpSettings(heartbeat_s=0.05)) as server:
        server.put(BASE)
        with EventSource(server, f"{BASE}/stream") as source:
            while source.comments < 3:
                assert source.event() == ""
            publish(server, "a")
            assert source.message()["body"] == "a"


def test_a_stream_that_is_left_leaves_nothing_behind(server: Server) -> None:
    server.put(BASE)
    for _ in range(3):
        with EventSource(server, f"{BASE}/stream"):
            pass
    end = time.monotonic() + PATIENCE_S
    while server.broker.stats()["consumers"]:
        assert time.monotonic() < end
        time.sleep(0.01)


def test_draining_ends_a_stream(server: Server) -> None:
    server.put(BASE)
    with EventSource(server, f"{BASE}/stream") as source:
        server.loop.call_soon_threadsafe(server.listener.drain)
        assert source.event() is None


def test_a_client_that_reads_slowly_gets_everything(server: Server) -> None:
    lines = "\n".join(json.dumps({"body": "x" * 1000}) for _ in range(5000))
    server.post(f"{BASE}/messages", lines, content_type="application/x-ndjson")
    with EventSource(server, f"{BASE}/stream?start=earliest") as source:
        for expected in range(5000):
            if expected % 1000 == 0:
                time.sleep(0.05)
            assert source.message()["offset"] == expected


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/v1/topics/no/stream", {}, 404),
        (f"{BASE}/stream?start=nowhere", {}, 400),
        (f"{BASE}/stream?start=nan", {}, 400),
        (f"{BASE}/stream?start=0:99", {}, 409),
        (f"{BASE}/stream?format=xml", {}, 400),
        (f"{BASE}/stream?colour=red", {}, 400),
        (f"{BASE}/stream", {"last_event_id": "x"}, 400),
        (f"{BASE}/stream", {"last_event_id": "0:" + "9" * 50}, 400),
    ],
)
def test_streams_that_make_no_sense_are_refused(
    server: Server, path: str, headers: dict[str, str], status: int
) -> None:
    server.put(BASE)
    with EventSource(server, path, **headers) as source:
        assert source.status == status


def test_curl_reads_a_stream(server: Server) -> None:
    publish(server, "a")
    url = f"http://127.0.0.1:{server.port}{BASE}/stream?start=earliest"
    command = ["curl", "-sN", "--max-time", str(PATIENCE_S), url]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as curl:
        assert curl.stdout is not None
        for line in curl.stdout:
            if line.startswith(b"data: "):
                break
        curl.kill()
    assert json.loads(line[6:])["body"] == "a"
