"""What every part of a Run needs: the broker, its History, and the two halves of a command."""

from collections.abc import Callable
from typing import Any

from penstock.broker.broker import Broker
from penstock.broker.mailbox import DIRECT
from penstock.delivery.state import Consumer
from penstock.journal.memory import MemoryDisk
from penstock.journal.settings import JournalSettings
from penstock.vocabulary.claims import Claim
from penstock.vocabulary.policy import SubscriptionPolicy, TopicPolicy
from tests.crash.given import Hand
from tests.crash.model import Model, Spot
from tests.crash.oracle import History


class Holder:
    """A consumer and what it holds: spot → (lease, attempt)."""

    def __init__(self, topic: str, subscription: str | None, credit: int) -> None:
        self.topic = topic
        self.subscription = subscription
        self.credit = credit
        self.held: dict[Spot, tuple[int, int]] = {}
        self.closed: Any = None
        self.consumer: Consumer


class Base:
    """One workload in progress, without its commands."""

    disk: MemoryDisk
    settings: JournalSettings

    def __init__(self) -> None:
        self.clock = Hand()
        self.history = History()
        self.holders: list[Holder] = []
        self.sequences: dict[tuple[int, int, bytes], tuple[int, int]] = {}
        """(born, partition, publisher) → (epoch, next sequence)."""
        self.is_watched = True
        """False while a workload prepares the store it starts from."""
        self.is_killed = False
        self.trouble: BaseException | None = None
        """The newest error somebody was answered with."""
        self.broker: Broker

    # -- the two halves of every command ---------------------------------------------------------

    def commit(self) -> None:
        """Does all work that waits."""
        engine = self.broker.engine
        while engine.run_jobs() or engine.commit_once():
            pass
        if self.trouble is not None:
            trouble, self.trouble = self.trouble, None
            raise trouble
        if self.broker.journal.failed is not None:
            raise self.broker.journal.failed

    def _propose(self, change: Callable[[Model], None]) -> int:
        return self.history.propose(change)

    def _when_durable(self, step: int) -> None:
        """Asks for a flush; its answer confirms the step."""

        def answer(result: Any) -> None:
            if isinstance(result, BaseException):
                self.trouble = result
            else:
                self.history.confirm(step)

        self.broker.flush(DIRECT, answer)

    def settle(self, step: int | None = None) -> None:
        """Commits, and confirms everything proposed so far, or up to a step."""
        self._when_durable(self.newest_step if step is None else step)
        self.commit()

    @property
    def newest_step(self) -> int:
        """The number of the step proposed last."""
        return len(self.history.steps) - 1

    def _propose_sub(
        self, topic: str, name: str, policy: SubscriptionPolicy, start: str = "earliest"
    ) -> None:
        self._propose_topic(topic)
        home = self.history.last.topics[topic]
        starts = tuple(home.ends) if start == "latest" else home.earliest()
        step = self._propose(lambda m: m.create_sub(topic, name, policy, starts))
        self.history.subscribed[home.born, name] = step

    def _propose_topic(self, topic: str) -> None:
        if topic not in self.history.last.topics:
            self._propose(lambda m: m.create_topic(topic, 1, TopicPolicy()))

    # -- what consumers hold ---------------------------------------------------------------------

    @staticmethod
    def claims(holder: Holder, spots: list[Spot]) -> list[Claim]:
        return [
            Claim(holder.held[spot][0], spot[0], holder.held[spot][1], ((spot[1], spot[1] + 1),))
            for spot in spots
        ]

    @staticmethod
    def forget(holder: Holder, spots: list[Spot]) -> None:
        for spot in spots:
            del holder.held[spot]

    @staticmethod
    def has(holder: Holder, spot: Spot) -> bool:
        """True while the broker agrees that this consumer holds the message."""
        lease = holder.consumer.leases.get(holder.held[spot][0])
        return lease is not None and bool(lease.mask() >> (spot[1] - lease.start) & 1)

    def notice_voids(self, holder: Holder) -> None:
        """Drops what was taken from a consumer: by a seek, a removal, or a nack of its key."""
        self.forget(holder, [spot for spot in holder.held if not self.has(holder, spot)])

    def out(self, topic: str) -> set[tuple[str, Spot]]:
        """(subscription, message) of everything consumers of a topic hold."""
        return {
            (holder.subscription, spot)
            for holder in self.holders
            if holder.topic == topic and holder.subscription is not None
            for spot in holder.held
            if self.has(holder, spot)
        }
