"""Pulling and settling: leases, tokens, long polls, and what happens when somebody goes away."""

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.broker import Broker
from penstock.journal.disk import FolderDisk
from penstock.journal.memory import MemoryDisk
from penstock.server import http_pull
from penstock.server.http import HttpSettings
from penstock.wire.rest_tokens import key_of, read_token, write_token
from tests.broker.rig import ManualClock
from tests.server.http_server import BASE, PATIENCE_S, PLACE, Server, serving, wait_for


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as found:
        found.put(PLACE)
        yield found


def publish(server: Server, *bodies: str, **headers: str) -> None:
    for body in bodies:
        assert server.post(f"{BASE}/messages", body, **headers).status == 200


def tokens(messages: list[dict[str, Any]]) -> dict[str, Any]:
    return {"tokens": [message["token"] for message in messages]}


def bodies(messages: list[dict[str, Any]]) -> list[str]:
    return [message["body"] for message in messages]


def test_a_pull_takes_no_more_than_it_asks_for(server: Server) -> None:
    publish(server, *"abcde")
    assert bodies(server.pull(max=2)) == ["a", "b"]
    assert server.get(PLACE).json()["leased"] == 2
    assert bodies(server.pull(max=2)) == ["c", "d"]
    assert bodies(server.pull()) == ["e"]
    assert server.pull() == []


def test_acking_makes_no_room_that_nobody_asked_for(server: Server) -> None:
    publish(server, *"abcd")
    first = server.pull(max=2)
    server.post(f"{PLACE}/ack", tokens(first))
    row = server.get(PLACE).json()
    assert (row["leased"], row["waiting"], row["acked"]) == (0, 2, 2)


def test_a_long_poll_answers_when_a_message_comes(server: Server) -> None:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.extend(server.pull(wait_s=20)))
    begun = time.monotonic()
    thread.start()
    wait_for(lambda: server.get(PLACE).json()["consumers"])
    publish(server, "late")
    thread.join(PATIENCE_S)
    assert bodies(found) == ["late"]
    assert time.monotonic() - begun < 15


def test_a_long_poll_without_messages_ends_empty(server: Server) -> None:
    begun = time.monotonic()
    assert server.pull(wait_s=0.3) == []
    assert time.monotonic() - begun >= 0.3


def test_two_long_polls_of_one_consumer_share_what_comes(server: Server) -> None:
    found: list[Any] = []
    threads = [
        threading.Thread(target=lambda: found.append(server.pull(max=1, wait_s=20, consumer="c")))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    wait_for(lambda: server.get(PLACE).json()["consumers"])
    publish(server, "a", "b")
    for thread in threads:
        thread.join(PATIENCE_S)
    assert sorted(body for messages in found for body in bodies(messages)) == ["a", "b"]


def test_a_client_that_goes_away_while_it_waits_loses_nothing(server: Server) -> None:
    plain = server.raw()
    body = b'{"wait_s":30,"max":10}'
    head = f"POST {PLACE}/pull HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    plain.sendall(head.encode() + body)
    wait_for(lambda: server.get(PLACE).json()["consumers"])
    plain.close()
    wait_for(lambda: len(server.listener.connections) == 0)
    publish(server, "a")
    (message,) = server.pull(wait_s=10)
    assert (message["body"], message["attempt"]) == ("a", 1)


def test_what_is_on_its_way_to_a_client_that_goes_away_is_not_kept_for_it(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_pull, "is_in_transit", lambda *_: True)
    test_a_client_that_goes_away_while_it_waits_loses_nothing(server)


def test_a_client_that_goes_away_behind_another_answer_loses_nothing(server: Server) -> None:
    """Its pull is answered inside the server, but stands behind a request that is not."""
    publish(server, "a")
    with server.raw() as plain:
        long = f"POST {PLACE}x/pull?wait_s=30 HTTP/1.1\r\nhost: x\r\n\r\n"
        server.put(PLACE + "x", {"start": "latest"})
        short = f"POST {PLACE}/pull HTTP/1.1\r\nhost: x\r\n\r\n"
        plain.sendall((long + short).encode())
        wait_for(lambda: server.get(PLACE).json()["leased"] == 1)
    (message,) = server.pull(wait_s=10)
    assert (message["body"], message["attempt"]) == ("a", 1)


def test_a_nack_brings_the_message_again(server: Server) -> None:
    publish(server, "a")
    told = {**tokens(server.pull(wait_s=5)), "delay_s": 0, "reason": "not now"}
    assert server.post(f"{PLACE}/nack", told).json() == {"nacked": 1}
    (message,) = server.pull(wait_s=10)
    assert message["attempt"] == 2


def test_more_time_may_be_asked_for() -> None:
    clock = ManualClock()
    broker = Broker.open(MemoryDisk(), clock=clock)
    with closing(broker), serving(broker) as server:
        server.put(PLACE, {"lease_s": 0.5})
        publish(server, "a", "b")
        first, second = server.pull(wait_s=5)
        told = {"tokens": [first["token"]], "seconds": 60}
        assert server.post(f"{PLACE}/extend", told).json() == {"extended": 1}
        clock.advance(5)
        (again,) = server.pull(wait_s=10)
        assert (again["body"], again["attempt"]) == ("b", 2)
        late = server.post(f"{PLACE}/extend", {"tokens": [second["token"]], "seconds": 60})
        assert (late.status, late.json()["code"]) == (409, "not-leased")
        assert late.json()["refused"][0]["position"] == second["position"]


def test_acking_twice_is_success(server: Server) -> None:
    publish(server, "a")
    told = tokens(server.pull(wait_s=5))
    assert server.post(f"{PLACE}/ack", told).json() == {"acked": 1}
    assert server.post(f"{PLACE}/ack", told).json() == {"acked": 1}


def test_the_token_of_an_earlier_delivery_is_refused(server: Server) -> None:
    publish(server, "a", "b")
    old, other = server.pull(wait_s=5)
    server.post(f"{PLACE}/nack", {"tokens": [old["token"]], "delay_s": 0})
    server.pull(wait_s=10)
    answer = server.post(f"{PLACE}/ack", tokens([old, other]))
    said = answer.json()
    assert (answer.status, said["code"], said["accepted"]) == (409, "ack-refused", 1)
    assert said["refused"] == [
        {"topic": "t", "position": old["position"], "why": said["refused"][0]["why"]}
    ]
    assert server.get(PLACE).json()["acked"] == 1


def test_tokens_that_were_made_up_are_refused_before_anything_is_done(server: Server) -> None:
    publish(server, "a")
    (message,) = server.pull(wait_s=5)
    forged = write_token(read_token(message["token"], server.listener.seats._key), b"k" * 32)
    for wrong in (forged, "nonsense", "", message["token"][:-1] + "!"):
        answer = server.post(f"{PLACE}/ack", {"tokens": [message["token"], wrong]})
        assert (answer.status, answer.json()["code"]) == (400, "invalid-argument")
    assert server.get(PLACE).json()["acked"] == 0


def test_tokens_of_another_subscription_are_refused(server: Server) -> None:
    server.put(f"{BASE}/subscriptions/other")
    publish(server, "a")
    told = tokens(server.pull(wait_s=5))
    answer = server.post(f"{BASE}/subscriptions/other/ack", told)
    assert (answer.status, answer.json()["code"]) == (409, "ack-refused")
    assert "another subscription" in answer.json()["detail"]


@pytest.mark.parametrize("kind", ["key_shared", "multicast"])
def test_kinds_that_know_their_consumers_need_a_name(server: Server, kind: str) -> None:
    place = f"{BASE}/subscriptions/{kind}"
    server.put(place, {"kind": kind})
    answer = server.post(f"{place}/pull", {})
    assert (answer.status, answer.json()["code"]) == (400, "invalid-argument")
    assert "name the consumer" in answer.json()["detail"]


def test_a_reader_is_not_pulled_from(server: Server) -> None:
    place = f"{BASE}/subscriptions/reader"
    server.put(place, {"kind": "reader"})
    answer = server.post(f"{place}/pull", {"consumer": "c"})
    assert 400 <= answer.status < 500


def test_keys_keep_their_order_and_their_consumer(server: Server) -> None:
    place = f"{BASE}/subscriptions/keyed"
    server.put(place, {"kind": "key_shared"})
    for n in range(4):
        publish(server, f"{n}", penstock_key="k")
    first = server.pull(place, consumer="one", max=2, wait_s=5)
    assert bodies(first) == ["0", "1"]
    assert server.pull(place, consumer="two", max=2) == []
    server.post(f"{place}/ack", tokens(first))
    assert bodies(server.pull(place, consumer="one", max=2, wait_s=5)) == ["2", "3"]


def test_every_named_consumer_of_a_multicast_has_all(server: Server) -> None:
    place = f"{BASE}/subscriptions/many"
    server.put(place, {"kind": "multicast"})
    for name in ("one", "two"):
        assert server.pull(place, consumer=name) == []
    publish(server, "a")
    for name in ("one", "two"):
        found = server.pull(place, consumer=name, wait_s=5)
        assert bodies(found) == ["a"]
        assert server.post(f"{place}/ack", tokens(found)).json() == {"acked": 1}


def test_at_qos_0_nothing_need_be_acked(server: Server) -> None:
    place = f"{BASE}/subscriptions/once"
    server.put(place, {"qos": 0})
    publish(server, "a")
    assert bodies(server.pull(place, wait_s=5)) == ["a"]
    assert server.pull(place) == []


def test_what_is_not_there_cannot_be_pulled(server: Server) -> None:
    for place, code in (
        (f"{BASE}/subscriptions/no", "unknown-subscription"),
        ("/v1/topics/no/subscriptions/s", "unknown-topic"),
    ):
        answer = server.post(f"{place}/pull", {})
        assert (answer.status, answer.json()["code"]) == (404, code)
        answer = server.post(f"{place}/ack", {"tokens": ["x"]})
        assert answer.status in {400, 404}


def has_nobody(row: dict[str, Any]) -> bool:
    """Its consumer left, and the lease is over for everybody to see."""
    return not row["consumers"] and row["waiting"] == 1


def test_an_idle_consumer_leaves_and_its_token_is_still_good() -> None:
    with serving(settings=HttpSettings(consumer_idle_s=0.1)) as server:
        server.put(PLACE, {"lease_s": 0.2, "retry": {"first_s": 30, "max_s": 30}})
        publish(server, "a")
        (message,) = server.pull(wait_s=5)
        wait_for(lambda: has_nobody(server.get(PLACE).json()))
        answer = server.post(f"{PLACE}/ack", tokens([message]))
        assert answer.json() == {"acked": 1}, answer.body


def test_a_subscription_with_idle_consumers_can_be_deleted(server: Server) -> None:
    server.pull(consumer="c")
    assert server.ask("DELETE", PLACE).status == 204
    server.put(PLACE)
    server.pull(consumer="c")
    assert server.ask("DELETE", BASE).status == 204


def test_a_subscription_that_is_deleted_ends_who_waits(server: Server) -> None:
    found: list[Any] = []
    thread = threading.Thread(
        target=lambda: found.append(server.post(f"{PLACE}/pull", {"wait_s": 20}))
    )
    thread.start()
    wait_for(lambda: server.get(PLACE).json()["consumers"])
    answer = server.ask("DELETE", PLACE)
    assert (answer.status, answer.json()["code"]) == (409, "subscription-in-use")
    publish(server, "a")
    thread.join(PATIENCE_S)
    assert found[0].status == 200


def test_draining_ends_long_polls_at_once(server: Server) -> None:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(server.pull(wait_s=25)))
    begun = time.monotonic()
    thread.start()
    wait_for(lambda: server.get(PLACE).json()["consumers"])
    server.loop.call_soon_threadsafe(server.listener.drain)
    thread.join(PATIENCE_S)
    assert found == [[]]
    assert time.monotonic() - begun < 20


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("qos", [1, 2])
def test_the_broker_is_restarted_between_pull_and_ack(
    tmp_path: Path, is_clean: bool, qos: int
) -> None:
    """A token from before is refused, except to hear again that its message is done."""
    broker = Broker.open(FolderDisk(tmp_path))
    with serving(broker) as server:
        server.put(PLACE, {"qos": qos})
        publish(server, "a", "b")
        done: list[dict[str, Any]] = []
        left: list[dict[str, Any]] = []
        while len(done + left) < 2:
            for message in server.pull(wait_s=10):
                (done if message["body"] == "a" else left).append(message)
        assert server.post(f"{PLACE}/ack", tokens(done)).json() == {"acked": 1}
        if not is_clean:
            broker.abandon()
    if is_clean:
        broker.close()
    again = Broker.open(FolderDisk(tmp_path))
    try:
        with serving(again) as server:
            assert server.post(f"{PLACE}/ack", tokens(done)).json() == {"acked": 1}
            answer = server.post(f"{PLACE}/ack", tokens(left))
            assert (answer.status, answer.json()["code"]) == (409, "ack-refused")
            assert "delivered again" in answer.json()["detail"]
            late = server.post(f"{PLACE}/extend", {**tokens(left), "seconds": 5})
            assert (late.status, late.json()["code"]) == (409, "not-leased")
            (message,) = server.pull(wait_s=10)
            assert (message["body"], message["attempt"]) == ("b", 2)
            assert server.post(f"{PLACE}/ack", tokens([message])).json() == {"acked": 1}
            assert server.pull() == []
    finally:
        again.close()


def test_a_store_that_failed_says_so(tmp_path: Path) -> None:
    broker = Broker.open(FolderDisk(tmp_path))
    try:
        with serving(broker) as server:
            server.put(PLACE)
            broker.close()
            answer = server.post(f"{BASE}/messages", b"x")
            assert (answer.status, answer.json()["code"]) in {(503, "closed"), (503, "draining")}
            assert server.post(f"{PLACE}/pull", {}).status == 503
    finally:
        broker.close()


def test_keys_of_tokens_belong_to_the_store(server: Server) -> None:
    assert server.listener.seats._key == key_of(server.broker.journal.store_id)
