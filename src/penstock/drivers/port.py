"""The Driver port: who carries a message. Every broker technology is one implementation.

The client calls these methods from one event loop and never asks which driver it has: what a
driver can do is data, in Capabilities. Answers come back on that loop, by calling an Answer.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, runtime_checkable

import msgspec

from penstock.batch.frame import Slice
from penstock.vocabulary import limits
from penstock.vocabulary.claims import Claim, Refusal, Renewal, Revoked
from penstock.vocabulary.message import Durability, Kind
from penstock.vocabulary.policy import TopicPolicy
from penstock.vocabulary.records import Cause, Ranges
from penstock.vocabulary.requests import Request
from penstock.vocabulary.units import UnitWish
from penstock.vocabulary.wishes import Wish

Answer = Callable[[Any], None]
"""Called once, on the client's loop, with the result or with an exception object; a driver answers
after the call that asks has returned."""


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a URL can do. What is not here is refused with Unsupported."""

    scheme: str
    durability: Durability
    """The strongest level it confirms a message at."""
    kinds: tuple[Kind, ...] = (Kind.SHARED,)
    qos: tuple[int, ...] = (1,)
    has_order_per_key: bool = True
    has_replay: bool = True
    """A new subscription may start at a position or a time in the past."""
    has_own_positions: bool = False
    """Positions are texts of its own, not '<partition>:<offset>'."""
    has_dead_letters: bool = True
    has_readers: bool = True
    """`client.reader` works: ranges of offsets can be planned, read and committed."""
    has_priority: bool = False
    has_delay: bool = False
    has_expiry: bool = False
    has_dedup: bool = False
    has_transactions: bool = False
    can_peek_all: bool = True
    """`peek` can go on to the end of what a topic holds."""
    has_patterns: bool = False
    """A subscription may be over a pattern of topics."""
    has_headers: bool = True
    """A message may have headers and a key, and need not have a body."""
    topic_settings: tuple[str, ...] = TopicPolicy.__struct_fields__
    """The settings of a topic that it can keep."""
    has_last: bool = True
    """The last message of a topic can be kept for as long as it is the last, and be looked at."""
    partitions_usual: int = 1
    """Partitions of a topic that nobody asked more for."""
    message_bytes_max: int = limits.BODY_BYTES_MAX


class Sink(Protocol):
    """Where a consumer's messages and bad news go. Called on the client's loop, if not said."""

    def on_slice(self, part: Slice) -> None:
        """Messages arrived."""
        ...

    def on_refused(self, refusals: list[Refusal]) -> None:
        """The broker did not accept these. Called from any thread."""
        ...

    def on_closed(self, error: Exception) -> None:
        """Nothing more will come."""
        ...

    def on_revoked(self, news: Revoked) -> None:
        """Kind `key_shared`: each nack is answered so; what it names is not theirs any more.

        Comes in order with the slices.
        """
        ...


class Attachment(Protocol):
    """One consumer of one subscription. Settling may be called from any thread."""

    @property
    def lease_s(self) -> float:
        """How long a delivery may take before it counts as failed."""
        ...

    def ack(self, claims: list[Claim]) -> None:
        """Finishes messages; durable with the next group. What is refused goes to the sink."""
        ...

    def give_back(self, claim: Claim, cause: Cause, delay_s: float | None, reason: str) -> None:
        """Brings messages back: nack, reject. What is refused goes to the sink."""
        ...

    def extend(self, renewals: list[Renewal], seconds: float) -> None:
        """Gives messages `seconds` from now; what is no longer leased is left alone."""
        ...

    def flush(self, answer: Answer) -> None:
        """Answers None once everything settled so far is durable."""
        ...

    def detach(self, begun: dict[int, Ranges], answer: Answer) -> None:
        """Leaves; answers None once that is durable.

        `begun` tells, per lease, what the application had in hand; the rest gets its attempt back.
        """
        ...


class Follower(Protocol):
    """A consumer of a pattern. Called on the client's loop."""

    def on_joined(self, topic: str, attachment: Attachment) -> Sink:
        """One more topic matches; its messages and bad news go to the returned sink."""
        ...

    def on_closed(self, error: Exception) -> None:
        """Nothing more will come."""
        ...


class Following(Protocol):
    """One consumer of a pattern, seen by the client."""

    def leave(self) -> None:
        """No more topics join; those that did are detached one by one. Twice is harmless."""
        ...


class Driver(Protocol):
    """A connection of one client. Raises PenstockError; foreign errors are translated inside."""

    @property
    def capabilities(self) -> Capabilities:
        """What this URL can do."""
        ...

    @property
    def wall(self) -> int:
        """The broker's time in Unix milliseconds, as near as it is known."""
        ...

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has; it is created when missing."""
        ...

    def has_room(self) -> bool:
        """True when publishes may go on; when not, wait for `when_room` first."""
        ...

    def when_room(self, answer: Answer) -> None:
        """Answers None once publishes may go on."""
        ...

    def publish(  # noqa: PLR0913, PLR0917 - the hot path: no object per call
        self, topic: str, partition: int, batch: bytes, count: int, publisher: bytes, epoch: int,
        sequence: int, answer: Answer, partitions: int = 0,
    ) -> None:  # fmt: skip
        """Stores a batch and answers Stored. An error raised here means: certainly not stored.

        `partitions` is how many the batch was split for, 0 = any. When there are others now it is
        refused with StaleMap, raised or answered: certainly not stored, either way. A batch that
        may have been stored before is never refused so: it is answered, from where it was sent to.
        """
        ...

    def attach(self, wish: Wish, sink: Sink) -> Awaitable[Attachment]:
        """Joins a subscription; creates topic and subscription when missing."""
        ...

    def deliver(self) -> None:
        """Gives every answer that arrived but was not given yet. On the client's loop."""
        ...

    def ask(self, request: Request) -> Awaitable[Any]:
        """Administers or looks; the result is the one its request names."""
        ...

    def close(self) -> Awaitable[None]:
        """Ends the connection. Doing so twice is harmless."""
        ...


# What only some drivers have is declared apart, and nothing else is asked of a driver.


class PatternDriver(Protocol):
    """The rest of a driver whose capabilities say `has_patterns`."""

    def follow(self, wish: Wish, follower: Follower) -> Awaitable[Following]:
        """Joins a subscription over a pattern: every topic that matches now or later.

        `wish.topic` is the pattern. Each topic is an attachment of its own with the whole credit,
        and lease ids of its own. Topics may join before this returns, messages come after.
        """
        ...


class UnitDriver(Protocol):
    """The rest of a driver whose capabilities say `has_transactions`."""

    gathers_units: bool
    """Units of many tasks may be committed as one, and again in parts when that is refused."""

    def commit_unit(
        self, wish: UnitWish, claims: list[tuple[Attachment, list[Claim]]], answer: Answer
    ) -> None:
        """Stores batches and finishes messages, all or nothing; answers a Stored for each batch.

        An error raised here means: certainly nothing of it. A driver that tries again does so with
        the same wish, and has at most `limits.UNITS_KEPT` of them under way.
        """
        ...


@runtime_checkable
class EpochDriver(Protocol):
    """The rest of a driver that can give epochs at once, without a question to wait for."""

    def take_epoch(self, publisher: bytes, at_least: int) -> int:
        """An epoch above every one of this publisher."""
        ...


@runtime_checkable
class ReconnectingDriver(Protocol):
    """The rest of a driver whose consumers come back by themselves, with what they hold."""

    def reconnect(self) -> None:
        """Leaves a connection that is silent, and makes another."""
        ...
