"""Publishing through a listener: numbers, partitions, topics made anew, and a broker that fails."""

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from penstock.server import http_publish
from penstock.vocabulary.errors import DiskFull
from penstock.wire.rest_fields import Fields
from penstock.wire.rest_lines import read_lines
from tests.server.http_server import BASE, Server, read_answers, serving

LINES = {"content_type": "application/x-ndjson"}


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as found:
        yield found


def test_a_key_goes_where_every_publisher_sends_it(server: Server) -> None:
    server.put(BASE, {"partitions": 5})
    alone = server.post(f"{BASE}/messages", b"x", penstock_key="k").json()["partition"]
    many = server.post(f"{BASE}/messages", '{"body":"x","key":"k"}', **LINES).json()
    event = {"specversion": "1.0", "id": "1", "source": "s", "type": "t", "partitionkey": "k"}
    sent = server.post(f"{BASE}/messages", event, content_type="application/cloudevents+json")
    assert many["ranges"][0]["partition"] == sent.json()["partition"] == alone


def test_messages_without_a_key_are_spread(server: Server) -> None:
    server.put(BASE, {"partitions": 3})
    found = [server.post(f"{BASE}/messages", b"x").json()["partition"] for _ in range(6)]
    assert sorted(found) == [0, 0, 1, 1, 2, 2]


def test_ids_are_never_used_twice(server: Server) -> None:
    server.put(BASE, {"partitions": 2})
    ids = [server.post(f"{BASE}/messages", b"x").json()["id"] for _ in range(4)]
    server.ask("DELETE", BASE)
    ids += [server.post(f"{BASE}/messages", b"x").json()["id"] for _ in range(4)]
    server.ask("PATCH", BASE, {"partitions": 3})
    ids += [server.post(f"{BASE}/messages", b"x").json()["id"] for _ in range(6)]
    looked = [m["id"] for m in server.get(f"{BASE}/messages").json()["messages"]]
    assert sorted(ids[4:]) == sorted(looked)
    by_partition = {
        (m["partition"], m["id"]) for m in server.get(f"{BASE}/messages").json()["messages"]
    }
    assert len(by_partition) == 10


def test_partitions_added_while_publishing_lose_nothing(server: Server) -> None:
    def publish(number: int) -> int:
        return server.post(f"{BASE}/messages", str(number), penstock_key=f"k{number}").status

    server.put(BASE)
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(publish, number) for number in range(60)]
        for partitions in (2, 5, 9):
            server.ask("PATCH", BASE, {"partitions": partitions})
        assert {each.result() for each in waiting} == {200}
    bodies = [int(m["body"]) for m in server.get(f"{BASE}/messages?limit=1000").json()["messages"]]
    assert sorted(bodies) == list(range(60))


def test_topics_that_are_many_are_forgotten_and_met_again(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_publish, "TOPICS_MAX", 2)
    for _ in range(2):
        for topic in "abcd":
            answer = server.post(f"/v1/topics/{topic}/messages", b"x")
            assert (answer.status, answer.json()["duplicate"]) == (200, False)
    assert all(each["published"] == 2 for each in server.get("/v1/topics").json()["topics"])


def test_messages_that_come_together_are_stored_together(server: Server) -> None:
    """In the order they came, each with its own receipt, whatever stands between them."""
    records = server.broker.stats()["records"]
    head = b"POST /v1/topics/t/messages HTTP/1.1\r\nhost: x\r\n"
    plain = head + b"content-length: 3\r\n\r\n%03d"
    keyed = head + b"penstock-key: k\r\ncontent-length: 3\r\n\r\n%03d"
    with server.raw() as plainly:
        plainly.sendall(b"".join((keyed if n == 50 else plain) % n for n in range(100)))
        answers = [answer.json() for answer in read_answers(plainly, 100)]
    assert [each["offset"] for each in answers] == list(range(100))
    found = server.get(f"{BASE}/messages?limit=1000").json()["messages"]
    assert [int(each["body"]) for each in found] == list(range(100))
    assert [each["id"] for each in found] == [each["id"] for each in answers]
    assert server.broker.stats()["records"] - records < 50


def test_messages_that_come_together_are_refused_together(server: Server) -> None:
    server.broker.drain()
    ask = b"POST /v1/topics/t/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\nx"
    with server.raw() as plain:
        plain.sendall(ask * 20)
        answers = read_answers(plain, 20)
    assert [(a.status, a.json()["code"]) for a in answers] == [(503, "draining")] * 20


def together(server: Server, *more: bytes) -> list[dict[str, Any]]:
    """Publishes that arrive in one piece, each with these lines in its head."""
    head = b"POST /v1/topics/t/messages HTTP/1.1\r\nhost: x\r\n%bcontent-length: 2\r\n\r\n%02d"
    with server.raw() as plain:
        plain.sendall(b"".join(head % (each, at) for at, each in enumerate(more)))
        return [answer.json() for answer in read_answers(plain, len(more))]


def test_an_id_that_comes_twice_together_is_stored_once(server: Server) -> None:
    same = b"penstock-id: same\r\n"
    found = together(server, b"", same, same, b"penstock-id: other\r\n", same)
    assert [each["duplicate"] for each in found] == [False, False, True, False, True]
    assert [each["offset"] for each in found] == [0, 1, 1, 2, 1]
    assert [each["id"] for each in found[1:]] == ["same", "same", "other", "same"]
    assert server.get(BASE).json()["published"] == 3


def test_keys_that_come_together_go_to_their_partitions(server: Server) -> None:
    server.put(BASE, {"partitions": 4})
    keys = [b"penstock-key: k%d\r\npenstock-priority: %d\r\n" % (n % 7, n % 3) for n in range(40)]
    found = together(server, *keys)
    places: dict[int, list[int]] = {}
    for number, each in enumerate(found):
        places.setdefault(each["partition"], []).append(each["offset"])
        assert each["partition"] == found[number % 7]["partition"]
    assert len(places) > 1
    assert all(offsets == list(range(len(offsets))) for offsets in places.values())


def test_a_bad_message_among_good_ones_is_refused_alone(server: Server) -> None:
    found = together(server, b"", b"penstock-id: %b\r\n" % (b"x" * 600), b"")
    assert [each.get("code") for each in found] == [None, "too-large", None]
    assert server.get(BASE).json()["published"] == 2


def test_many_messages_of_which_some_are_known(server: Server) -> None:
    server.post(f"{BASE}/messages", b"x", penstock_id="2")
    lines = "\n".join(json.dumps({"body": "x", "id": str(n)}) for n in range(5))
    said = server.post(f"{BASE}/messages", lines, **LINES).json()
    assert said["duplicates"] == [2]
    assert said["ranges"] == [{"partition": 0, "first": 1, "last": 4}]


def test_a_broker_that_refuses_says_so_for_one_and_for_many(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.broker.journal.disk, "free_bytes", lambda: 0)
    server.broker.check_space()
    for body, headers in ((b"x", {}), (b'{"body":"x"}', LINES)):
        answer = server.post(f"{BASE}/messages", body, **headers)
        assert (answer.status, answer.json()["code"]) == (507, "disk-full")
        assert answer.headers["retry-after"] == "1"


def test_a_failure_in_the_middle_tells_what_is_stored(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.wire.rest_lines.COUNT_CUT", 10)
    publish = server.broker.publish
    calls: list[int] = []

    def fail_third(*arguments: Any) -> None:
        calls.append(1)
        if len(calls) == 3:
            raise DiskFull("no room")
        publish(*arguments)

    monkeypatch.setattr(server.broker, "publish", fail_third)
    lines = "\n".join('{"body":"x"}' for _ in range(50))
    answer = server.post(f"{BASE}/messages", lines, **LINES)
    said = answer.json()
    assert (answer.status, said["code"], said["stored"]) == (
        507,
        "disk-full",
        [[0, 0, 9], [0, 10, 19]],
    )
    assert "20 of the messages are stored" in said["detail"]


def test_publishes_wait_while_too_much_is_pending(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker is asked for room, and the publish goes on when it says so."""
    monkeypatch.setattr(http_publish, "PENDING_BYTES_MAX", -1)
    asked: list[Any] = []

    def when_room(waiter: Any) -> bool:
        asked.append(waiter)
        mailbox, target, answer = waiter
        mailbox.post([(target, answer)])
        return False

    monkeypatch.setattr(server.broker, "when_room", when_room)
    assert server.post(f"{BASE}/messages", b"x").status == 200
    assert server.post(f"{BASE}/messages", '{"body":"y"}', **LINES).status == 200
    assert len(asked) == 2


def test_the_listener_can_be_used_without_http(server: Server) -> None:
    async def publish() -> tuple[bytes, bytes]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        publishing = server.listener.publishing
        publishing.publish("direct", Fields(b"x"), answer.set_result)
        many = await publishing.publish_many("direct", read_lines(b'{"body":"y"}', 0), loop)
        return await answer, many

    one, many = server.call(publish())
    assert json.loads(one)["offset"] == 0
    assert json.loads(many)["ranges"] == [{"partition": 0, "first": 1, "last": 1}]
