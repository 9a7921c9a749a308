"""The blocking twin has the same names and needs no loop."""

import inspect
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.client.blocking import BlockingClient, BlockingDeliveries, connect_blocking
from penstock.client.client import Client
from penstock.client.deliveries import Deliveries
from penstock.client.received import ReceivedMessage
from penstock.testing import MemoryBroker
from penstock.vocabulary.errors import (
    AckRefused,
    Closed,
    InvalidArgument,
    NotAStore,
    TooLarge,
    UsageError,
)
from penstock.vocabulary.message import Message


def test_a_script_publishes_and_receives(tmp_path: Path) -> None:
    with connect_blocking(f"file:{tmp_path / 'store'}") as client:
        receipt = client.publish("orders", json={"n": 1}, key="k")
        assert receipt.position == "0:0"
        receipts = client.publish_many("orders", [b"1", Message(body=b"2")])
        assert len(receipts) == 2
        with client.subscribe("orders", "billing") as deliveries:
            message = deliveries.receive(timeout_s=5)
            assert message is not None
            assert (message.json(), message.key) == ({"n": 1}, "k")
            message.ack()
            got = []
            for message in deliveries:
                got.append(message.body)
                message.ack()
                if len(got) == 2:
                    break
            assert got == [b"1", b"2"]
            deliveries.flush()
            assert client.subscriptions("orders")[0]["acked"] == 3
            assert deliveries.receive(timeout_s=0.01) is None


def test_it_opens_at_its_first_use_and_closes_twice_harmlessly() -> None:
    client = connect_blocking("memory:")
    assert client.url == "memory:"
    assert client.capabilities.scheme == "memory"
    client.publish("orders", b"x")
    client.close()
    client.close()
    with pytest.raises(Closed, match="connect again"):
        client.publish("orders", b"y")
    unused = connect_blocking("memory:")
    unused.close()


def test_errors_are_the_same(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="did you mean"):
        connect_blocking("fiel:data")
    (tmp_path / "data").write_text("text")
    with pytest.raises(NotAStore), connect_blocking(f"file:{tmp_path / 'data'}"):
        pass
    with connect_blocking("memory:") as client:
        with pytest.raises(TooLarge, match="key"):
            client.publish("orders", b"x", key="k" * 2000)
        with pytest.raises(InvalidArgument):
            client.subscribe("orders", "billing", kind="queue")


def test_every_public_name_of_the_client_is_there() -> None:
    def names(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    assert names(Client) - names(BlockingClient) == {"attach_to", "catch_up"}
    own = {
        "ready",
        "stocked",
        "take",
        "stop",
        "on_slice",
        "on_refused",
        "on_closed",
        "catch_up",
        "on_revoked",
        "attach_anew",
        "driver",
        "is_waiting",
        "wish",
    }
    assert names(Deliveries) - names(BlockingDeliveries) == own
    for name in names(BlockingClient):
        assert not inspect.iscoroutinefunction(getattr(BlockingClient, name)), name


def test_administration_and_looking_work_without_await() -> None:
    with MemoryBroker() as broker, broker.client_blocking() as client:
        client.create_topic("orders", partitions=1, retain_s=60)
        client.alter_topic("orders", retain_s=30)
        assert client.describe_topic("orders")["policy"]["retain_s"] == 30
        client.create_subscription("orders", "billing", lease_s=5)
        client.alter_subscription("orders", "billing", lease_s=6)
        client.publish("orders", b"x")
        assert client.explain("orders", position="0:0")["reason"] == "no-consumer"
        client.seek("orders", "billing", "0:1")
        client.seek("orders", "billing", "0:1")
        assert client.subscriptions()[0]["dropped"] == 1
        client.confirm_time()
        client.publish("orders", b"x")
        assert [message.body for message in client.peek("orders", limit=5)] == [b"x"]
        with client.subscribe("orders", "billing") as deliveries:
            assert (deliveries.topic, deliveries.subscription) == ("orders", "billing")
            assert deliveries.consumer.startswith("consumer-")
            message = deliveries.receive(timeout_s=5)
            assert message is not None
            message.reject("bad")
            broker.settle()
        assert len(client.dead_letters("orders", "billing")) == 1
        assert client.redrive("orders", "billing", dry_run=True) == 1
        assert client.purge_dead("orders", "billing") == 1
        client.delete_subscription("orders", "billing")
        assert client.subscriptions() == []
        assert client.stats()["topics"] == 2
        client.delete_topic("orders")
        assert "orders" not in [row["topic"] for row in client.topics()]


def test_time_moved_by_a_test_reaches_blocking_clients() -> None:
    with MemoryBroker() as broker, broker.client_blocking() as client:
        client.publish_many("orders", [b"0", b"1"])
        with client.subscribe("orders", "billing") as deliveries:
            late = deliveries.receive(timeout_s=5)
            broker.advance(31)
            other = deliveries.receive(timeout_s=5)
            again = deliveries.receive(timeout_s=5)
            assert late is not None
            assert other is not None
            assert again is not None
            assert (other.body, other.attempt) == (b"1", 1)
            assert (again.body, again.attempt) == (b"0", 2)
            late.ack()
            with pytest.raises(AckRefused):
                deliveries.flush()


def test_batches_come_in_a_for_loop() -> None:
    with connect_blocking("memory:") as client:
        client.publish_many("orders", [str(n) for n in range(10)])
        with client.subscribe("orders", "billing") as deliveries:
            got: list[bytes | None] = []
            for batch in deliveries.batches(4):
                got.extend(batch.bodies)
                batch.ack()
                if len(got) == 10:
                    break
            deliveries.close()
        assert got == [str(n).encode() for n in range(10)]


def test_iteration_hands_out_no_more_than_it_yields() -> None:
    with connect_blocking("memory:") as client:
        client.publish_many("orders", [b"0", b"1", b"2"])
        with client.subscribe("orders", "billing") as deliveries:
            for message in deliveries:
                message.ack()
                break
        with client.subscribe("orders", "billing") as deliveries:
            rest = [deliveries.receive(timeout_s=5) for _ in range(2)]
            assert [(m.body, m.attempt) for m in rest if m] == [(b"1", 1), (b"2", 1)]


def test_threads_share_one_blocking_client() -> None:
    with connect_blocking("memory:") as client:
        threads = [
            threading.Thread(target=lambda: [client.publish("orders", b"x") for _ in range(20)])
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert client.describe_topic("orders")["messages"] == 80


def test_a_call_that_waits_when_the_client_is_closed_is_told() -> None:
    client = connect_blocking("memory:")
    deliveries = client.subscribe("orders", "billing").open()
    caught: list[Exception] = []

    def wait() -> None:
        try:
            deliveries.receive()
        except Closed as error:
            caught.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    client.publish("other", b"x")
    client.close()
    thread.join(60)
    assert len(caught) == 1
    assert client.is_closed


def test_handlers_run_until_stopped() -> None:
    client = connect_blocking("memory:")
    got: list[Any] = []

    @client.on_message("orders", "s")
    def handle(body: str) -> None:
        got.append(body)
        if len(got) == 2:
            client.stop()

    client.publish_many("orders", ["0", "1"])
    client.run()
    assert got == ["0", "1"]
    assert client.subscriptions()[0]["acked"] == 2
    client.close()


def test_an_async_handler_must_not_call_the_blocking_client() -> None:
    client = connect_blocking("memory:")
    caught: list[Exception] = []

    @client.on_message("orders", "s")
    async def handle(message: ReceivedMessage) -> None:
        try:
            client.publish("orders", b"again")
        except UsageError as error:
            caught.append(error)
        client.stop()

    client.publish("orders", b"x")
    client.run()
    client.close()
    assert "wait for itself" in str(caught[0])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_blocking_program(tmp_path: Path, number: signal.Signals) -> None:
    program = textwrap.dedent(
        f"""
        import time, penstock
        with penstock.connect_blocking("file:{tmp_path / "store"}") as client:
            @client.on_message("orders", "s")
            def handle(body: str) -> None:
                print("begin", flush=True)
                time.sleep(0.2)
                print("end", flush=True)
            client.publish("orders", "x")
            client.run()
        print("closed", flush=True)
        """
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begin\n"
        process.send_signal(number)
        assert process.stdout.read() == "end\nclosed\n"
        assert process.wait(60) == 0
