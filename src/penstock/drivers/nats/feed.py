"""One consumer of a JetStream consumer: pulls, acks, naks."""

import asyncio
from asyncio import Event
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from penstock.drivers.foreign.carrier import Refused, Release, Seat
from penstock.drivers.foreign.envelope import Letter, unseal
from penstock.drivers.nats.connection import API, NO_RESPONDERS, Incoming, Listening
from penstock.vocabulary.errors import PenstockError, Unavailable, UnknownSubscription

if TYPE_CHECKING:
    from penstock.drivers.nats.carrier import NatsCarrier

PULL_S: Final = 1.0
SLACK_S: Final = 1.0
"""A pull that was not answered so long after its end is lost."""
MOVING_S: Final = 0.1
MOVING_TRIES: Final = 20
"""So often a consumer is looked for before it counts as deleted."""
ACK: Final = b"+ACK"
TERM: Final = b"+TERM"
RENEW: Final = b"+WPI"
TOKENS: Final = 9
"""Of the reply subject of a delivery, without domain and account."""
SPARED: Final = "$penstock.spared"
"""Notes of deliveries that never reached the application, one message each."""
OWN_HEADERS: Final = ("Nats-",)


class Place(NamedTuple):
    """What the reply subject of a delivery says."""

    delivered: int
    stream_seq: int
    nanoseconds: int


def place_of(reply: str) -> Place:
    """Reads `$JS.ACK.<stream>.<consumer>.<delivered>.<sseq>.<cseq>.<time>.<pending>`."""
    tokens = reply.split(".")
    at = 4 if len(tokens) == TOKENS else 6
    return Place(int(tokens[at]), int(tokens[at + 1]), int(tokens[at + 3]))


def opened(message: Incoming, seq: int, at_ms: int) -> Letter:
    """The letter in a record of a stream, whoever wrote it."""
    headers = message.headers
    if headers:
        headers = {k: v for k, v in headers.items() if not k.startswith(OWN_HEADERS)}
    letter = unseal(headers, message.data, id=f"{message.subject}:{seq}", at=at_ms)
    letter.offset, letter.position = seq, f"0:{seq}"
    return letter


class NatsFeed:
    """Pulls for one consumer; at most one pull is under way."""

    def __init__(self, carrier: "NatsCarrier", seat: Seat, stream: str, consumer: str) -> None:
        self._carrier = carrier
        self._connection = carrier.connection
        self._seat = seat
        self._stream = stream
        self._consumer = consumer
        self._inbox = self._connection.new_inbox()
        self._arrived: deque[Incoming] = deque()
        self._event = Event()
        self._wanted = 0
        """What is left of the pull that is under way; 0 = none is."""
        self._pull_end = 0.0
        self._status = ""
        self._last_seq = 0
        self._listening: Listening | None = None

    async def open(self) -> None:
        """Begins to listen."""
        self._listening = await self._connection.subscribe(self._inbox, self._on_message)

    def _on_message(self, message: Incoming) -> None:
        if message.status is not None:
            self._status = message.status
            self._wanted = 0
        else:
            self._wanted = max(0, self._wanted - 1)
            self._arrived.append(message)
        self._event.set()

    # -- fetching --------------------------------------------------------------------------------

    async def fetch(self, count: int, bytes_max: int) -> list[Letter]:
        loop = asyncio.get_running_loop()
        if not self._arrived:
            self._status = ""
            if not self._wanted or loop.time() > self._pull_end + SLACK_S:
                await self._pull(count, loop.time())
            self._event.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(PULL_S + SLACK_S):
                    await self._event.wait()
            if not self._arrived:
                await self._explain()
                return []
        found: list[Incoming] = []
        size = 0
        while self._arrived and len(found) < count and size < bytes_max:
            message = self._arrived.popleft()
            size += len(message.data)
            found.append(message)
        return await self._letters(found)

    async def _pull(self, count: int, now: float) -> None:
        question = {"batch": count, "expires": int(PULL_S * 1e9)}
        self._wanted, self._pull_end = count, now + PULL_S
        try:
            await self._connection.publish(
                f"{API}CONSUMER.MSG.NEXT.{self._stream}.{self._consumer}",
                msgspec.json.encode(question), self._inbox,
            )  # fmt: skip
        except Unavailable:
            self._wanted = 0
            raise

    async def _explain(self) -> None:
        """Nothing came: finds out whether the consumer is still there."""
        if self._status not in (NO_RESPONDERS, "409"):
            if not self._connection.is_up:
                self._wanted = 0
                raise Unavailable("the connection to NATS is broken")
            return
        self._wanted = 0
        try:
            await self._check_there()
        except UnknownSubscription:
            if self._seat.subscription is not None:
                raise
            await self._carrier.make_ephemeral(
                self._seat, self._stream, self._consumer, self._last_seq + 1
            )
        else:
            if self._status == NO_RESPONDERS:
                raise Unavailable("NATS is not ready to deliver yet")

    async def _check_there(self) -> None:
        """Raises UnknownSubscription; a consumer that is moved is away for a moment only."""
        is_durable = self._seat.subscription is not None
        for tries_left in reversed(range(MOVING_TRIES if is_durable else 1)):
            try:
                await self._connection.api(f"CONSUMER.INFO.{self._stream}.{self._consumer}")
                return
            except UnknownSubscription:
                if not tries_left:
                    raise
                await asyncio.sleep(MOVING_S)

    async def _letters(self, messages: list[Incoming]) -> list[Letter]:
        letters: list[Letter] = []
        has_repeats = False
        for message in messages:
            place = place_of(message.reply)
            letter = opened(message, place.stream_seq, place.nanoseconds // 1_000_000)
            letter.token, letter.attempt = message.reply, place.delivered
            has_repeats = has_repeats or place.delivered > 1
            self._last_seq = max(self._last_seq, place.stream_seq)
            letters.append(letter)
        if has_repeats and self._seat.subscription is not None:
            spared = await self._carrier.spared(self._stream, self._consumer)
            for letter in letters:
                assert letter.offset is not None
                letter.attempt = max(1, letter.attempt - spared.get(letter.offset, 0))
        return letters

    # -- settling --------------------------------------------------------------------------------

    async def settle(self, letters: Sequence[Letter]) -> list[Refused]:
        return await self._say(letters, ACK)

    async def _say(self, letters: Sequence[Letter], word: bytes) -> list[Refused]:
        """Says the same about several deliveries; the server answers the last, in order."""
        try:
            for letter in letters[:-1]:
                await self._connection.publish(letter.token, word)
            await self._connection.request(letters[-1].token, word)
        except Unavailable:
            await self._connection.api(f"CONSUMER.INFO.{self._stream}.{self._consumer}")
            raise
        return []

    async def release(self, releases: Sequence[Release]) -> list[Refused]:
        spared = [release.letter for release in releases if release.is_unstarted]
        if spared and self._seat.subscription is not None:
            await self._carrier.spare(self._stream, self._consumer, spared)
        for letter, delay_s, _ in releases:
            word = b'-NAK {"delay": %d}' % int(delay_s * 1e9) if delay_s > 0 else b"-NAK"
            await self._connection.publish(letter.token, word)
        await self._connection.round_trip()
        return []

    async def renew(self, letters: Sequence[Letter]) -> None:
        for letter in letters:
            await self._connection.publish(letter.token, RENEW)

    async def bury(self, dead_topic: str, letters: Sequence[Letter]) -> list[Refused]:
        await self._carrier.ensure_dead(dead_topic, self._seat.policy.dead_bytes_max)
        await self._carrier.send(dead_topic, letters, None)
        return await self._say(letters, TERM)

    async def close(self) -> None:
        with suppress(PenstockError):
            if self._listening is not None:
                await self._listening.end()
            # What was on its way when the pull ended comes back at once, and uncounted.
            if self._arrived and self._seat.policy.qos:
                letters = await self._letters(list(self._arrived))
                await self.release([Release(each, 0.0, is_unstarted=True) for each in letters])
            if self._seat.subscription is None and self._connection.is_up:
                await self._connection.api(f"CONSUMER.DELETE.{self._stream}.{self._consumer}")
