"""The half of a Run that commits units, and subscribes to patterns and as member of a multicast."""

from typing import Any, Final

from penstock.batch import encode_many
from penstock.broker.broker import Sink
from penstock.broker.mailbox import DIRECT
from penstock.vocabulary.limits import MEMBER_IDLE_S_MAX
from penstock.vocabulary.message import Kind, Message, render_id
from penstock.vocabulary.policy import SubscriptionPolicy
from penstock.vocabulary.units import Part, UnitWish
from tests.crash.base import Holder
from tests.crash.model import Item, Model
from tests.crash.oracle import Committed, Violation
from tests.crash.publishing import Publishing

CAROL: Final = b"\x01" + bytes(14) + b"\x06"
"""Who commits units."""
EVERYBODY: Final = SubscriptionPolicy(kind=Kind.MULTICAST)


class Uniting(Publishing):
    """Units, patterns and multicasts."""

    def unit(
        self, publishes: list[tuple[str, bytes, str | None]],
        acks: list[tuple[Holder, list[int]]], *, is_committed: bool = True,
    ) -> None:  # fmt: skip
        """Publishes (topic, body, id) and acks of partition 0, as one."""
        for topic, _, _ in publishes:
            self._propose_topic(topic)
        wall = self.clock.wall()
        parts: list[Part] = []
        items: list[Item] = []
        for topic, body, id in publishes:
            epoch, sequence = self._next(topic, 0, CAROL, is_new_epoch=False)
            home = self.history.last.topics[topic]
            self.sequences[home.born, 0, CAROL] = (epoch, sequence + 1)
            batch = encode_many([Message(body=body, id=id)])
            parts.append(Part(topic, 0, batch, 1, epoch, sequence))
            items.append(Item(body, None, id or render_id(CAROL, epoch, sequence), wall))
        places: list[int] = []

        def change(model: Model) -> None:
            for part, item, (topic, _, id) in zip(parts, items, publishes, strict=True):
                places.extend(
                    model.publish(
                        topic, 0, [item], [id], publisher=CAROL, epoch=part.epoch,
                        last=part.sequence, out=self.out(topic),
                    )
                )  # fmt: skip
            for holder, offsets in acks:
                assert holder.subscription is not None
                model.finish(holder.topic, holder.subscription, [(0, o) for o in offsets])

        step = self._propose(change)
        wish = UnitWish(CAROL, 0, len(self.history.units), parts)
        unit = Committed(step, wish, tuple(places))
        self.history.units.append(unit)
        claims = [
            (holder.consumer, self.claims(holder, [(0, offset) for offset in offsets]))
            for holder, offsets in acks
        ]

        def answer(result: Any) -> None:
            if isinstance(result, BaseException):
                self.trouble = result
                return
            check_unit(unit, result)
            self.history.confirm(step)

        self.broker.commit_unit(wish, claims, DIRECT, answer)
        for holder, offsets in acks:
            self.forget(holder, [(0, offset) for offset in offsets])
        if is_committed:
            self.commit()

    # -- patterns --------------------------------------------------------------------------------

    def subscribe_pattern(self, pattern: str, name: str, policy: SubscriptionPolicy) -> None:
        step = self._propose(lambda m: m.create_pattern(pattern, name, policy))
        self.broker.create_subscription(pattern, name, policy, None)
        self.history.confirm(step)

    def unsubscribe_pattern(self, pattern: str, name: str) -> None:
        step = self._propose(lambda m: m.delete_pattern(pattern, name))
        self.broker.delete_subscription(pattern, name)
        self.history.confirm(step)

    # -- multicasts ------------------------------------------------------------------------------

    def attach_member(self, topic: str, name: str, consumer: str) -> Holder:
        """A named consumer of a multicast: its cursor is made when it first comes."""
        self._propose_topic(topic)
        member = f"{name}@{consumer}"
        home = self.history.last.topics[topic]
        if member not in home.subs:
            self._propose(lambda m: m.join(topic, name, member, EVERYBODY))
        holder = Holder(topic, member, 1000)

        def close(reason: Any) -> None:
            holder.closed = reason

        sink = Sink(DIRECT, lambda piece: self._take(holder, piece), close)
        holder.consumer = self.broker.attach(
            topic, name, EVERYBODY, None, 1000, 1 << 26, consumer, sink, is_named=True
        )
        self.holders.append(holder)
        self.settle()
        return holder

    def _take(self, holder: Holder, piece: Any) -> None:
        raise NotImplementedError

    def forget_member(self, topic: str, name: str, consumer: str) -> None:
        """It stayed away too long."""
        self.clock.advance(int(MEMBER_IDLE_S_MAX * 1000))
        self._propose(lambda m: m.forget_member(topic, name, f"{name}@{consumer}"))
        self.broker.tick()
        self.settle()


def check_unit(unit: Committed, answer: Any) -> None:
    """The answer to a unit, or to its retry, names the places of its messages."""
    if not isinstance(answer, list):
        raise Violation(f"S7 unit {unit.wish[:3]} was answered with {answer}")
    places = tuple(
        part.base if part.base is not None else (part.places or {}).get(0) for part in answer
    )
    if places != unit.places:
        raise Violation(f"S7 unit {unit.wish[:3]} is at {unit.places}, answered with {answer}")
