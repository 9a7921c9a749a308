"""What is measured with: readings of battery packs, and how topics are filled with them."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

DEVICES: Final = 200
START: Final = datetime(2024, 6, 1, tzinfo=UTC)
CHUNK: Final = 10_000
PARTITIONS: Final = 2
"""One for each core of `local[2]`, of both brokers."""
TOPIC: Final = "bench.pms"


def device(number: int) -> str:
    """Whose reading it is."""
    return f"PMS-{number % DEVICES:03}"


def body(number: int, at: datetime | None = None) -> bytes:
    """One right reading; no two of a device and pack have one moment."""
    moment = START + timedelta(milliseconds=86 * number) if at is None else at
    base = 600 + number % 97
    cells = ",".join(f"3.{base + (number * 7 + cell * 13) % 40}" for cell in range(14))
    amps = (number % 800 - 400) / 8
    return (
        f'{{"pms_id":"{device(number)}","status":{{"code":"0001","temp":48.3}},'
        f'"time_local":"{moment:%Y%m%dT%H%M%S}Z",'
        f'"pack":{{"id":"{number % 7:04}","dock":{number % 48 + 1},'
        f'"amps":{amps},"temp":[35,33,34],"cell":{{"open":[],"volts":[{cells}]}},'
        f'"fet":{{"open":[2],"temp":[34,32]}}}}}}'
    ).encode()


def chunks(count: int, first: int = 0) -> Iterator[list[tuple[str, bytes]]]:
    """Keys and bodies, many at a time."""
    for start in range(first, first + count, CHUNK):
        end = min(start + CHUNK, first + count)
        yield [(device(number), body(number)) for number in range(start, end)]


async def fill_penstock(url: str, topic: str, count: int, partitions: int = PARTITIONS) -> None:
    """Publishes readings to a new topic of a Penstock server or store."""
    import penstock
    from penstock.vocabulary.message import Message

    async with penstock.connect(url) as client:
        await client.create_topic(topic, partitions, replay_s=1e6)
        for chunk in chunks(count):
            await client.publish_many(topic, [Message(body=b, key=key) for key, b in chunk])


def fill_kafka(bootstrap: str, topic: str, count: int) -> None:
    """Publishes the same to a new Kafka topic."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
        made.result(60)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5})
    failed: list[Any] = []

    def told(error: Any, _message: Any) -> None:
        if error is not None:
            failed.append(error)

    for chunk in chunks(count):
        for key, value in chunk:
            _produce(producer, topic, key, value, told)
        producer.poll(0)
    if producer.flush(120) or failed:
        raise OSError(f"Kafka did not take every message: {failed[:1]}")


def _produce(producer: Any, topic: str, key: str, value: bytes, told: Any) -> None:
    while True:
        try:
            producer.produce(topic, value, key, on_delivery=told)
        except BufferError:
            producer.poll(0.05)
        else:
            return
