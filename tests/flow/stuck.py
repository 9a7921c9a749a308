"""A broker with one topic, for scripts that get messages stuck."""

from typing import Any

from penstock.batch import encode_many
from penstock.broker.broker import Sink
from penstock.broker.explaining import explain_topic
from penstock.broker.mailbox import DIRECT, Pending
from penstock.vocabulary.message import Kind, Message
from penstock.vocabulary.policy import Retry, SubscriptionPolicy, TopicPolicy
from tests.broker.rig import NAMED, Rig, Worker

KEYED = SubscriptionPolicy(kind=Kind.KEY_SHARED)
MULTICAST = SubscriptionPolicy(kind=Kind.MULTICAST)
SHARED = SubscriptionPolicy()
PATIENT = SubscriptionPolicy(retry=Retry(max_attempts=None))


class Scene:
    """A rig, and words for what goes on in it."""

    def __init__(self, partitions: int = 1, **policy: Any) -> None:
        self.rig = Rig()
        self.rig.broker.create_topic("orders", partitions, TopicPolicy(**policy))

    @property
    def now(self) -> float:
        return self.rig.clock.wall() / 1000

    def subscribe(
        self, policy: SubscriptionPolicy = SHARED, name: str = "billing", topic: str = "orders"
    ) -> None:
        self.rig.broker.create_subscription(topic, name, policy, None)

    def publish(self, *messages: Message, partition: int = 0, topic: str = "orders") -> None:
        """Publishes these, or one plain message."""
        given = list(messages) or [Message(body=b"x")]
        place = (topic, partition, NAMED, 0)
        sequence = self.rig.sequences.get(place, 0)
        self.rig.sequences[place] = sequence + len(given)
        pending = Pending()
        self.rig.broker.publish(
            topic, partition, encode_many(given), len(given), NAMED, 0, sequence, DIRECT, pending
        )
        self.rig.settle()
        pending.wait()

    def keys(self, *keys: str | None, partition: int = 0) -> None:
        """Publishes messages with these keys."""
        self.publish(*(Message(body=b"x", key=key) for key in keys), partition=partition)

    def join(
        self, consumer: str, name: str = "app", policy: SubscriptionPolicy = MULTICAST
    ) -> Worker:
        """Attaches a named consumer to a multicast."""
        worker = Worker()
        sink = Sink(DIRECT, worker.receive, worker.closed.append)
        worker.consumer = self.rig.broker.attach(
            "orders", name, policy, None, 1000, 1 << 26, consumer, sink, is_named=True
        )
        self.rig.settle()
        return worker

    def explain(
        self, position: str | None = None, subscription: str | None = "billing",
        topic: str = "orders", **which: Any,
    ) -> dict[str, Any]:  # fmt: skip
        return explain_topic(self.rig.broker, topic, subscription, position=position, **which)
