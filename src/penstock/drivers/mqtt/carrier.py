"""A connection to an MQTT broker: sends, administers, and opens sessions for consumers."""

import asyncio
import logging
import time
from asyncio import Task
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final
from uuid import uuid4

import msgspec

from penstock.drivers import capabilities
from penstock.drivers.foreign.address import Address
from penstock.drivers.foreign.carrier import (
    Placed,
    Seat,
    Sender,
    SubscriptionRow,
    TopicRow,
    Traits,
)
from penstock.drivers.foreign.envelope import Letter
from penstock.drivers.mqtt import slots
from penstock.drivers.mqtt.dead import DeadStore, check_url, open_store
from penstock.drivers.mqtt.feed import FETCH_S, MqttFeed
from penstock.drivers.mqtt.link import (
    FAILURE,
    NOT_AUTHORISED,
    NOT_HEARD,
    QUOTA,
    Link,
    Nature,
    host_name,
)
from penstock.drivers.mqtt.notes import (
    ALL,
    Notes,
    SessionNote,
    SubscriptionNote,
    TopicNote,
    path,
)
from penstock.drivers.mqtt.parcels import FIVE, Incoming, Packet, packed
from penstock.drivers.mqtt.topics import check_topic, client_id, filter_of, holds_of, shared_filter
from penstock.drivers.port import Capabilities
from penstock.vocabulary import names
from penstock.vocabulary.errors import (
    AccessRefused,
    InvalidArgument,
    PenstockError,
    StorageError,
    Unavailable,
    Unsupported,
)
from penstock.vocabulary.filters import is_pattern
from penstock.vocabulary.message import Kind
from penstock.vocabulary.policy import Retry, SubscriptionPolicy, TopicPolicy

log = logging.getLogger("penstock.drivers")

VERSIONS: Final = {"5": 5, "5.0": 5, "3.1.1": 4}
NOTE_S: Final = 10.0
HEARD_S: Final = 15.0
"""So long after a reconnect consumers may take to be back too."""
UNHEARD_PAUSE_S: Final = 0.1
STARTS: Final = ("earliest", "latest", None)


async def connect(address: Address) -> "MqttCarrier":
    """A connection, proved to work. Raises Unavailable, AccessRefused, InvalidArgument."""
    carrier = MqttCarrier(address)
    try:
        await carrier.open()
    except BaseException:
        await carrier.close()
        raise
    return carrier


class MqttCarrier:
    """One client of an MQTT broker; each of its consumers has a connection of its own."""

    traits = Traits(
        has_leases=False, has_release=False, counts_attempts=False, has_patterns=True,
        fetch_s=FETCH_S,
    )  # fmt: skip

    def __init__(self, address: Address) -> None:
        options = address.options
        if len(address.hosts) > 1:
            raise InvalidArgument(f"{address.text} names several hosts; mqtt: URLs name one server")
        if address.path not in ("", "/"):
            raise InvalidArgument(f"{address.text}: mqtt: URLs have no path; name topics in calls")
        self.version = _choice("version", options.get("version", "5"), VERSIONS)
        self.qos = _choice("qos", options.get("qos", "1"), {"0": 0, "1": 1, "2": 2})
        self.capabilities: Capabilities = msgspec.structs.replace(
            capabilities.MQTT,
            has_expiry=self.version >= FIVE,
            has_headers=self.version >= FIVE,
            has_dead_letters="dead" in options,
        )
        self.text = address.text
        self.dead: DeadStore | None = None
        self._dead_url = check_url(options["dead"]) if "dead" in options else None
        self._holds = holds_of(options["hold"]) if "hold" in options else []
        self._address = address
        self._place = options.get("client") or host_name()
        self._link: Link | None = None
        self._has_notes = True
        self._notes = Notes(self._write_note)
        self._used: dict[str, float] = {}
        """Topics this client has published or subscribed to, and when it began."""
        self._heard: set[str] = set()
        """Topics that had a subscription when this client published to them."""
        self._reconnected_at = -HEARD_S
        self._feeds: set[MqttFeed] = set()
        self._reading: Task[None] | None = None

    @property
    def link(self) -> Link:
        """The connection for publishing and notes."""
        assert self._link is not None
        return self._link

    # -- opening and closing ---------------------------------------------------------------------

    async def open(self) -> None:
        """Connects, reads the notes, and makes the subscriptions the URL asks for."""
        name = f"penstock.{self._place[:20]}.{uuid4().hex[:12]}"
        self._link = Link(
            self._address, Nature(name), self.version, self._on_notes, self._on_up
        )  # fmt: skip
        await self._link.open()
        await self._read_notes()
        if self._link.packet_max is not None:
            limit = min(self.capabilities.message_bytes_max, self._link.packet_max)
            self.capabilities = msgspec.structs.replace(self.capabilities, message_bytes_max=limit)
        if self._dead_url is not None:
            self.dead = await open_store(self._dead_url)
        for topic, subscription in self._holds:
            if self._notes.subscription(topic, subscription) is None:
                retry = Retry() if self.dead is not None else Retry(max_attempts=None)
                policy = SubscriptionPolicy(retry=retry)
                await self.put_subscription(topic, subscription, policy, "earliest")

    async def close(self) -> None:
        for feed in list(self._feeds):
            await feed.close()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        if self._link is not None:
            await self._link.close()
        if self.dead is not None:
            with suppress(PenstockError):
                await self.dead.close()

    # -- notes -----------------------------------------------------------------------------------

    async def _read_notes(self) -> None:
        reason = await self.link.subscribe(ALL, 0, wants_retained=True, is_for_others=True)
        if reason >= FAILURE:
            self._has_notes = False
            log.warning("%s does not let this user read %s: subscriptions and topics of other "
                        "programs are not known", self.text, ALL)  # fmt: skip
            return
        await self.link.round_trip()

    def _on_notes(self, messages: list[Incoming]) -> None:
        for message in messages:
            self._notes.arrived(message.topic, message.body)

    def _on_up(self, is_present: bool) -> None:  # noqa: FBT001 - a callback
        self._reconnected_at = asyncio.get_running_loop().time()
        if self._has_notes and not is_present:
            self._reading = asyncio.get_running_loop().create_task(self._read_again())

    async def _read_again(self) -> None:
        with suppress(PenstockError):
            self._notes.begin()
            await self._read_notes()
            self._notes.end()

    async def _write_note(self, topic: str, body: bytes) -> None:
        if not self._has_notes:
            return
        [reason] = await self.link.publish([Packet(topic, body, 1, is_retained=True)], NOTE_S)
        if reason >= FAILURE:
            log.warning("%s refused the note %s (reason 0x%02X)", self.text, topic, reason)
            self._has_notes = False

    # -- sending ---------------------------------------------------------------------------------

    async def send(
        self, topic: str, letters: Sequence[Letter], sender: Sender | None
    ) -> list[Placed]:
        del sender  # MQTT knows no publisher: a repeated publish may arrive twice
        if names.is_dead_topic(topic):
            raise _dead_elsewhere(topic, self._dead_url)
        note = self._notes.topic(topic)
        is_retained = note is not None and note.policy.keep_last > 0
        wall = time.time_ns() // 1_000_000
        packets = packed(topic, letters, self.version, self.qos, wall, is_retained=is_retained)
        unheard = await self._publish(topic, packets)
        if unheard and not self._address.options.get("unheard"):
            raise Unsupported(
                f"topic {topic!r} has no subscription at {self.text}, and mqtt: URLs keep no "
                f"message without one: {unheard} of {len(packets)} messages reached nobody; "
                "subscribe first (option hold=TOPIC@NAME does it), or accept it with unheard=true"
            )
        return [Placed(None, letter.id) for letter in letters]

    async def _publish(self, topic: str, packets: list[Packet]) -> int:
        """Sends; how many reached nobody.

        After a restart of the server its publishers may be back before its consumers: what was
        heard before, or should be, is sent again for a while.
        """
        loop = asyncio.get_running_loop()
        while True:
            reasons = await self.link.publish(packets, self._address.publish_s)
            worst = max(reasons)
            if worst >= FAILURE:
                raise self._refused(topic, worst)
            packets = [
                packet
                for packet, reason in zip(packets, reasons, strict=True)
                if reason == NOT_HEARD and not packet.is_retained
            ]
            if len(packets) < len(reasons):
                self._heard.add(topic)
            is_missed = topic in self._heard or self._notes.subscriptions(topic)
            is_patient = is_missed and loop.time() < self._reconnected_at + HEARD_S
            if not packets or not is_patient or self._address.options.get("unheard"):
                return len(packets)
            await asyncio.sleep(UNHEARD_PAUSE_S)

    def _refused(self, topic: str, reason: int) -> PenstockError:
        text = f"{self.text} refused messages to topic {topic!r} (reason 0x{reason:02X})"
        if reason in NOT_AUTHORISED:
            return AccessRefused(f"{text}: this user may not publish there")
        return Unavailable(text) if reason == QUOTA else StorageError(text)

    # -- consuming -------------------------------------------------------------------------------

    async def open_feed(self, seat: Seat) -> MqttFeed:
        if names.is_dead_topic(seat.topic):
            raise _dead_elsewhere(seat.topic, self._dead_url)
        self._check_start(seat.start)
        slot = self._slot(seat.topic, seat.subscription, seat.policy.kind)
        try:
            feed = await self._opened(seat, slot)
        except BaseException:
            if slot is not None:
                slot.free()
            raise
        self._feeds.add(feed)
        return feed

    async def _opened(self, seat: Seat, slot: slots.Slot | None) -> MqttFeed:
        id = slot.client_id if slot is not None else f"penstock.ephemeral.{uuid4().hex}"
        feed = MqttFeed(self, seat, self._filter(seat), slot)
        feed.wants_retained = True  # a session that was made before may hold some
        will = path("consumer", id) if seat.subscription is not None else None
        nature = Nature(id, slot is not None, will)
        link = feed.link = Link(self._address, nature, self.version, feed.on_messages, feed.on_up)
        try:
            is_known = await link.open() and self._notes.has_session(id)
            if not is_known:
                feed.wants_retained = seat.start == "earliest"
            await feed.subscribe(is_new=not is_known)
            await self.announce(feed)
        except BaseException:
            await link.close()
            raise
        return feed

    def _filter(self, seat: Seat) -> str:
        wanted = filter_of(seat.topic)
        if seat.subscription is None or seat.policy.kind is Kind.MULTICAST:
            return wanted
        return shared_filter(seat.subscription, wanted)

    def _slot(self, topic: str, subscription: str | None, kind: Kind) -> slots.Slot | None:
        """The session of a consumer: its own by name, or the first of this host that is free."""
        if subscription is None:
            return None
        if kind is Kind.MULTICAST:
            found = slots.take(self.text, client_id(subscription, "", topic, None))
            if found is None:
                raise slots.in_use(subscription)
            return found
        for number in range(slots.SLOTS_MAX):
            id = client_id(subscription, self._place, topic, number)
            found = slots.take(self.text, id, number)
            if found is not None:
                return found
        raise slots.in_use(subscription)

    async def announce(self, feed: MqttFeed) -> None:
        """Tells everybody that a consumer is there, and which session it has."""
        seat = feed.seat
        if feed.slot is None or seat.subscription is None:
            return
        if self._notes.subscription(seat.topic, seat.subscription) is None:
            note = SubscriptionNote(seat.policy)
            await self._notes.put(note, "subscription", seat.topic, seat.subscription)
        session = SessionNote(seat.topic, seat.subscription, seat.consumer)
        await self._notes.put(session, "session", feed.slot.client_id)
        await self._notes.put(session, "consumer", feed.slot.client_id)

    async def leave(self, feed: MqttFeed, *, ends_session: bool) -> None:
        """A consumer is gone. Never raises."""
        self._feeds.discard(feed)
        if feed.slot is None or not self.link.is_up:
            return
        with suppress(PenstockError):
            await self._notes.put(None, "consumer", feed.slot.client_id)
            if ends_session:
                await self._notes.put(None, "session", feed.slot.client_id)

    # -- topics ----------------------------------------------------------------------------------

    async def find_topic(self, topic: str) -> TopicRow | None:
        if names.is_dead_topic(topic):
            count = None if self.dead is None else await self.dead.count(topic)
            return None if count is None else TopicRow(topic, TopicPolicy(), 1, count)
        check_topic(topic)
        note = self._notes.topic(topic)
        if note is not None:
            return TopicRow(topic, note.policy, created_at=note.created_at)
        if topic in self._used or topic in self._notes.topics():
            return TopicRow(topic, TopicPolicy(), created_at=self._used.get(topic, 0.0))
        return None

    async def put_topic(self, topic: str, partitions: int, policy: TopicPolicy) -> None:
        if names.is_dead_topic(topic):
            raise _dead_elsewhere(topic, self._dead_url)
        check_topic(topic)
        capabilities.check_topic_policy(self.capabilities, partitions, policy)
        if policy.keep_last > 1:
            raise Unsupported(
                f"topic setting keep_last={policy.keep_last} is not available on mqtt: URLs, whose "
                "brokers retain the newest message only: use keep_last=1"
            )
        self._used.setdefault(topic, time.time())
        if policy != TopicPolicy() or self._notes.topic(topic) is not None:
            note = TopicNote(policy, self._used[topic])
            await self._notes.put(note, "topic", topic)

    async def drop_topic(self, topic: str) -> None:
        for row in await self.list_subscriptions(topic):
            if self._notes.subscription(topic, row.subscription) is not None:
                await self.drop_subscription(topic, row.subscription)
        note = self._notes.topic(topic)
        if note is not None:
            if note.policy.keep_last:
                await self.link.publish([Packet(topic, b"", 1, is_retained=True)], NOTE_S)
            await self._notes.put(None, "topic", topic)
        self._used.pop(topic, None)

    async def list_topics(self) -> list[TopicRow]:
        known = {*self._used, *self._notes.topics()}
        if self.dead is not None:
            known.update(await self.dead.topics())
        rows = [await self.find_topic(topic) for topic in sorted(known)]
        return [row for row in rows if row is not None]

    # -- subscriptions ---------------------------------------------------------------------------

    async def list_subscriptions(self, topic: str) -> list[SubscriptionRow]:
        return [
            SubscriptionRow(topic, name, policy, self._notes.consumers(topic, name))
            for name, policy in sorted(self._notes.subscriptions(topic).items())
        ]

    async def put_subscription(
        self, topic: str, name: str, policy: SubscriptionPolicy, start: Any
    ) -> None:
        self._check_start(start)
        if self.dead is None and policy.qos and policy.retry.max_attempts is not None:
            raise Unsupported(
                f"subscription {name!r} of topic {topic!r}: mqtt: URLs have no place for dead "
                "letters: name a store in the URL (dead=file:DIR), or try without end "
                "(retry=Retry(max_attempts=None))"
            )
        filter_of(topic)
        is_new = self._notes.subscription(topic, name) is None
        if is_new and start is not None:
            await self._make_session(Seat(topic, name, policy, start, ""))
        if not is_pattern(topic):
            self._used.setdefault(topic, time.time())
        await self._notes.put(SubscriptionNote(policy), "subscription", topic, name)

    async def _make_session(self, seat: Seat) -> None:
        """Makes the session that holds messages until a consumer comes."""
        assert seat.subscription is not None
        slot = self._slot(seat.topic, seat.subscription, seat.policy.kind)
        assert slot is not None
        try:
            if slot.number:
                return  # a consumer of this host holds it
            feed = MqttFeed(self, seat, self._filter(seat), slot)
            feed.wants_retained = seat.start == "earliest"
            # What arrives already is not acked, so that it comes again with the consumer.
            nature = Nature(slot.client_id, is_lasting=True)
            link = feed.link = Link(self._address, nature, self.version, feed.on_messages)
            try:
                await link.open()
                await feed.subscribe(is_new=True)
                note = SessionNote(seat.topic, seat.subscription)
                await self._notes.put(note, "session", slot.client_id)
            finally:
                await link.close()
        finally:
            slot.free()

    async def drop_subscription(self, topic: str, name: str) -> None:
        for id in self._notes.sessions(topic, name):
            link = Link(self._address, Nature(id, is_lasting=self.version >= FIVE), self.version)
            try:
                await link.open(clean=True)
            finally:
                await link.close(ends_session=True)
            await self._notes.put(None, "session", id)
        await self._notes.put(None, "subscription", topic, name)

    async def seek(self, topic: str, name: str, to: Any) -> None:
        raise Unsupported(
            f"seek: subscription {name!r} of topic {topic!r} cannot be moved to {to!r}: mqtt: URLs "
            "keep no history"
        )

    def _check_start(self, start: Any) -> None:
        if start not in STARTS:
            raise Unsupported(
                f"start {start!r} is not available on mqtt: URLs, which keep no history: a "
                "subscription begins at its first moment; use 'latest', or 'earliest' to get "
                "retained messages too"
            )

    # -- looking ---------------------------------------------------------------------------------

    async def look(self, topic: str, limit: int, after: int | str | None) -> list[Letter]:
        if names.is_dead_topic(topic) and self.dead is not None:
            return await self.dead.look(topic, limit)
        raise Unsupported(
            f"peek: topic {topic!r} cannot be looked at{f' after {after!r}' if after else ''}: "
            "mqtt: URLs hold messages in the sessions of their subscriptions only"
        )

    async def remove(self, topic: str, letters: Sequence[Letter]) -> None:
        if self.dead is not None:
            await self.dead.remove(topic, letters)


def _choice(name: str, value: str, known: dict[str, int]) -> int:
    if value not in known:
        raise InvalidArgument(f"option {name!r} is one of {', '.join(known)}, not {value!r}")
    return known[value]


def _dead_elsewhere(topic: str, url: str | None) -> Unsupported:
    where = url or "a store, once the URL names one with dead=file:DIR"
    return Unsupported(
        f"{topic!r}: dead letters of mqtt: URLs are in {where}; see them with "
        "dead_letters, redrive and purge_dead"
    )
