"""What a consumer of Kafka remembers, and who remembers it after its death."""

import asyncio
import subprocess
import sys
from typing import Any

import penstock
from penstock.vocabulary.errors import AckRefused
from tests.contracts.suites.world import PATIENCE_S, first, nothing, several, unique, until
from tests.drivers.kafka.rig import client_of, run, url_of
from tests.servers.kafka import Cluster

KILLED = """
import asyncio, sys, penstock
async def main():
    async with penstock.connect(sys.argv[1]) as client:
        async with client.subscribe(sys.argv[2], "work", credit=10) as deliveries:
            for number in range(10):
                message = await deliveries.receive()
                if message.body in (b"1", b"4"):
                    message.ack()
            await deliveries.flush()
            print("holding", flush=True)
            await asyncio.sleep(60)
asyncio.run(main())
"""


def test_the_messages_of_a_killed_consumer_are_taken_over(kafka_server: Cluster) -> None:
    topic = unique("taken")

    async def scenario() -> None:
        async with client_of(kafka_server) as client:
            await client.create_subscription(topic, "work")
            await client.publish_many(topic, [str(number) for number in range(10)])
            command = [sys.executable, "-c", KILLED, url_of(kafka_server), topic]
            child = subprocess.Popen(command, stdout=subprocess.PIPE)  # noqa: ASYNC220 - at once
            assert child.stdout is not None
            try:
                line = await asyncio.to_thread(child.stdout.readline)
                assert line == b"holding\n"
            finally:
                child.kill()
                child.wait()
                child.stdout.close()
            async with client.subscribe(topic, "work") as deliveries:
                got = {}
                for _ in range(8):
                    message = await deliveries.receive(timeout_s=PATIENCE_S)
                    assert message is not None
                    got[int(message.body or b"-1")] = message.attempt
                    message.ack()
                await nothing(deliveries)
                # What was acked in any order never comes again.
                assert got == dict.fromkeys((0, 2, 3, 5, 6, 7, 8, 9), 2)

    run(scenario())


def test_partitions_move_without_doing_work_twice(kafka_server: Cluster) -> None:
    topic, total = unique("move"), 400
    done: list[str] = []
    refused: list[Any] = []
    """Acks of what was in hand too long when its partition moved: it must have come again."""

    async def work(client: penstock.Client, stop: asyncio.Event) -> None:
        try:
            async with client.subscribe(topic, "work") as deliveries:
                while not stop.is_set():
                    message = await deliveries.receive(timeout_s=0.1)
                    if message is not None:
                        await asyncio.sleep(0.002)
                        done.append((message.body or b"").decode())
                        message.ack()
        except AckRefused as error:
            refused.extend(error.refused)

    async def scenario() -> None:
        stop = asyncio.Event()
        async with (
            client_of(kafka_server, "topics=4:1") as one,
            client_of(kafka_server, "topics=4:1") as two,
        ):
            await one.publish_many(
                topic, [penstock.Message(body=str(n), key=str(n)) for n in range(total)]
            )
            await one.create_subscription(topic, "work")
            workers = [asyncio.create_task(work(one, stop))]

            async def is_begun() -> bool:
                return len(done) >= 20

            await until(is_begun, "some work")
            workers.append(asyncio.create_task(work(two, stop)))

            async def is_done() -> bool:
                return len(set(done)) == total

            await until(is_done, "all the work")
            stop.set()
            await asyncio.gather(*workers)
            [row] = await one.subscriptions(topic)
            assert (row["waiting"], row["leased"]) == (0, 0)

    run(scenario())
    repeats = len(done) - len(set(done))
    assert len(refused) <= repeats <= 2, "only what was in hand when a partition moved"


def test_a_key_stands_still_after_a_nack(kafka_server: Cluster) -> None:
    topic = unique("keyed")

    async def scenario() -> None:
        async with client_of(kafka_server) as client:
            for number in range(6):
                await client.publish(topic, str(number), key="ab"[number % 2])
            async with client.subscribe(topic, "s", kind="key_shared") as deliveries:
                a0, b1 = await several(deliveries, 2)
                a0.nack(delay_s=2)
                b1.ack()
                rest = await several(deliveries, 5)
                assert [m.body for m in rest] == [b"3", b"5", b"0", b"2", b"4"]
                assert [m.attempt for m in rest] == [1, 1, 2, 1, 1]
                for message in rest:
                    message.ack()
                await nothing(deliveries)

    run(scenario())


def test_at_most_once_is_finished_before_it_is_handed_over(kafka_server: Cluster) -> None:
    topic = unique("once")

    async def scenario() -> None:
        async with client_of(kafka_server) as client:
            await client.publish_many(topic, [b"0", b"1", b"2"])
            async with client.subscribe(topic, "s", qos=0, credit=2) as deliveries:
                assert (await first(deliveries)).body == b"0"
                [row] = await client.subscriptions(topic)
                assert (row["leased"], row["waiting"]) == (0, 1)

    run(scenario())
