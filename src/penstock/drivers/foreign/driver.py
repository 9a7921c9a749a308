"""A driver for a foreign broker: our Driver port, once, on top of any carrier."""

import asyncio
from asyncio import AbstractEventLoop, get_running_loop
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from penstock.drivers.foreign.address import Address
from penstock.drivers.foreign.attachment import ForeignAttachment, wall_ms
from penstock.drivers.foreign.carrier import Carrier, Feed, Seat, Sender
from penstock.drivers.foreign.desk import Desk
from penstock.drivers.foreign.envelope import letters_of, seal
from penstock.drivers.foreign.following import ForeignFollowing
from penstock.drivers.foreign.keyed_desk import KeyedDesk
from penstock.drivers.foreign.lanes import Bundle, Lanes
from penstock.drivers.foreign.native_following import NativeFollowing
from penstock.drivers.foreign.office import Office
from penstock.drivers.foreign.plain import batch_letters
from penstock.drivers.foreign.reaching import reach
from penstock.drivers.foreign.units import Acks, UnitCarrier, Units
from penstock.drivers.port import Answer, Attachment, Capabilities, Follower, Following, Sink
from penstock.vocabulary import names
from penstock.vocabulary.claims import Claim
from penstock.vocabulary.errors import (
    InvalidArgument,
    SubscriptionConflict,
    TooLarge,
    Unsupported,
)
from penstock.vocabulary.message import Kind
from penstock.vocabulary.policy import SubscriptionPolicy
from penstock.vocabulary.requests import Request
from penstock.vocabulary.units import UnitWish
from penstock.vocabulary.wishes import Wish

HEADER_BYTES: Final = 4
"""What a header takes of a broker's largest message besides its name and value."""


async def open_foreign(
    connect: Callable[[Address], Awaitable[Carrier]], address: Address
) -> "ForeignDriver":
    """A driver over a new connection, tried for as long as the URL says.

    Raises Unavailable, AccessRefused, InvalidArgument.
    """
    carrier = await reach(connect, address)
    return ForeignDriver(carrier, get_running_loop(), address.publish_s)


class ForeignDriver:
    """One client's connection to a foreign broker."""

    gathers_units = False

    def __init__(self, carrier: Carrier, loop: AbstractEventLoop, publish_s: float) -> None:
        self._carrier = carrier
        self._loop = loop
        self._office = Office(carrier, self._expired_here)
        self._lanes = Lanes(
            carrier, loop, publish_s, self._office.ensure_topic, self._office.forget_topic,
            self._office.knows_topic,
        )  # fmt: skip
        self._units: Units | None = None
        if carrier.capabilities.has_transactions:
            self._units = Units(
                cast("UnitCarrier", carrier), lambda: carrier.capabilities.durability, loop,
                publish_s, self._office.ensure_topic,
            )  # fmt: skip
        self._letters_of = batch_letters if carrier.traits.takes_plain else letters_of
        self._attachments: dict[ForeignAttachment, None] = {}
        self._expired: Counter[tuple[str, str | None]] = Counter()
        """By topic and subscription: what consumers that are gone did not deliver in time."""
        self._followings: dict[ForeignFollowing, None] = {}
        self._natives: list[NativeFollowing] = []
        self._is_closed = False

    @property
    def capabilities(self) -> Capabilities:
        return self._carrier.capabilities

    @property
    def carrier(self) -> Carrier:
        """The connection itself."""
        return self._carrier

    @property
    def wall(self) -> int:
        return wall_ms()

    def partitions(self, topic: str) -> int:
        return self._office.partitions(topic)

    def has_room(self) -> bool:
        return self._lanes.has_room()

    def when_room(self, answer: Answer) -> None:
        self._lanes.when_room(answer)

    def publish(  # noqa: PLR0913, PLR0917 - as wide as the port
        self, topic: str, partition: int, batch: bytes, count: int,  # noqa: ARG002
        publisher: bytes, epoch: int,
        sequence: int, answer: Answer, partitions: int = 0,  # noqa: ARG002
    ) -> None:  # fmt: skip
        letters = self._letters_of(batch, publisher, epoch, sequence)
        if partition:
            letters = list(letters)
            for letter in letters:
                letter.partition = partition
        limit = self.capabilities.message_bytes_max
        if len(batch) + HEADER_BYTES * 8 > limit // 2:
            for letter in letters:
                if letter.size + HEADER_BYTES * 8 > limit // 2:
                    check_size(topic, letter.size + _header_bytes(seal(letter)), limit)
        self._lanes.put(topic, Bundle(letters, len(batch), Sender(publisher, epoch), answer))

    async def attach(self, wish: Wish, sink: Sink) -> ForeignAttachment:
        attachment = await self.seat(wish)
        attachment.start(sink)
        return attachment

    async def seat(self, wish: Wish) -> ForeignAttachment:
        """A consumer that gets nothing before it is started."""
        await self._office.ensure_topic(wish.topic)
        seat = await self._seat_of(wish)
        return self.seated(wish, seat, await self._carrier.open_feed(seat))

    async def _seat_of(self, wish: Wish) -> Seat:
        """What a consumer asks for; its subscription is made when it is missing."""
        policy = wish.policy or SubscriptionPolicy()
        subscription, start = wish.subscription, wish.start
        if policy.kind is Kind.MULTICAST:
            subscription, start = _member(wish), "latest" if start is None else start
        if wish.subscription is not None:
            await self._office.check_kind(wish.topic, wish.subscription, policy.kind)
        if subscription is not None:
            row = await self._office.find_subscription(wish.topic, subscription)
            if row is None:
                start = "earliest" if start is None else start
                await self._office.create_subscription(wish.topic, subscription, policy, start)
            else:
                _check_same(wish, subscription, policy, row.policy)
                policy = row.policy
        start = "latest" if start is None else start
        return Seat(wish.topic, subscription, policy, start, wish.consumer)

    def seated(self, wish: Wish, seat: Seat, feed: Feed) -> ForeignAttachment:
        """A consumer of a feed that is open."""
        desk_of = KeyedDesk if _is_keyed(seat.policy, self._carrier) else Desk
        desk = desk_of(
            seat.topic, seat.subscription, wish.consumer, seat.policy, wish.credit,
            wish.credit_bytes, self._carrier.traits,
        )  # fmt: skip
        attachment = ForeignAttachment(desk, feed, self._loop, self._detached)
        self._attachments[attachment] = None
        return attachment

    def _detached(self, gone: ForeignAttachment) -> None:
        if gone in self._attachments:
            del self._attachments[gone]
            self._expired[gone.desk.topic, gone.desk.subscription] += gone.desk.expired

    def _expired_here(self) -> Counter[tuple[str, str | None]]:
        """By topic and subscription: messages that this client skipped, since it was opened."""
        found = self._expired.copy()
        for each in self._attachments:
            found[each.desk.topic, each.desk.subscription] += each.desk.expired
        return found

    async def follow(self, wish: Wish, follower: Follower) -> Following:
        """Joins every topic that matches a pattern; new ones are looked for once a second.

        Where the broker has patterns itself, a topic joins with its first message.
        """
        if self._carrier.traits.has_patterns:
            return await self._follow_natively(wish, follower)
        following = ForeignFollowing(
            wish, follower, self._office, self.seat, self._loop,
            lambda gone: self._followings.pop(gone, None),
        )  # fmt: skip
        await following.start()
        self._followings[following] = None
        return following

    async def _follow_natively(self, wish: Wish, follower: Follower) -> Following:
        seat = await self._seat_of(wish)
        for each in list(self._natives):
            await each.until_over()  # its place at the broker may be the one that is wanted now
        feed = await self._carrier.open_feed(seat)
        native = NativeFollowing(wish, seat, feed, follower, self.seated, self._loop)
        self._natives = [each for each in self._natives if not each.is_over] + [native]
        native.start()
        return native

    def commit_unit(
        self, wish: UnitWish, claims: list[tuple[Attachment, list[Claim]]], answer: Answer
    ) -> None:
        if self._units is None:
            raise Unsupported(f"{self.capabilities.scheme}: URLs have no transactions")
        acks: Acks = []
        for attachment, listed in claims:
            if attachment not in self._attachments or not isinstance(attachment, ForeignAttachment):
                raise InvalidArgument(
                    "a message of the unit was received by another client, or its subscription "
                    "was closed since: ack messages with the client that received them"
                )
            acks.append((attachment, listed))
        self._units.commit(wish, acks, answer)

    def deliver(self) -> None:
        """Answers are given as they come."""

    async def ask(self, request: Request) -> Any:
        return await self._office.answer(request)

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if get_running_loop() is not self._loop:
            return  # its tasks died with their loop, and the connection with them
        for following in list(self._followings):
            following.leave()
        await self._lanes.close()
        if self._units is not None:
            await self._units.close()
        await asyncio.gather(*(each.lose() for each in list(self._attachments)))
        await self._carrier.close()


def _is_keyed(policy: SubscriptionPolicy, carrier: Carrier) -> bool:
    return policy.kind is Kind.KEY_SHARED and carrier.traits.is_keyed_here


def check_size(topic: str, size: int, limit: int) -> None:
    """Raises TooLarge when a broker cannot take a message of this size."""
    if size > limit:
        raise TooLarge(
            f"a message of {size} bytes for topic {topic!r}, headers included, is over the "
            f"limit of {limit} of this broker"
        )


def _header_bytes(headers: dict[str, str]) -> int:
    return sum(len(name) + len(value) + HEADER_BYTES for name, value in headers.items())


def _member(wish: Wish) -> str | None:
    """Kind multicast: a named consumer has a durable place of its own, others begin now."""
    if not wish.is_named or wish.subscription is None:
        return None
    return names.check_member(wish.topic, wish.subscription, wish.consumer)


def _check_same(
    wish: Wish, subscription: str, asked: SubscriptionPolicy, found: SubscriptionPolicy
) -> None:
    if wish.policy is None:
        return
    for name in ("kind", "qos"):
        ours, theirs = getattr(asked, name), getattr(found, name)
        if ours != theirs:
            raise SubscriptionConflict(
                f"subscription {subscription!r} of topic {wish.topic!r} has {name} {theirs!s}, not "
                f"{ours!s}: use another name, or delete it first"
            )
