"""The inner port: what a foreign broker must be able to do. Each technology is one implementation.

A **carrier** is one connection. It sends letters, opens feeds and administers; a **feed** is one
consumer at the broker: it fetches letters and says what became of them. Everything else, such as
credit, leases, back-off, dead letters and redrive, is decided by the desk, once for all.

How to write a carrier:

- Import the SDK in its module only, and raise `missing(…)` when it is not installed.
- Translate every error of the SDK once, at this border: Unavailable (and its kinds) means "try the
  same call again when the broker is back", which the caller does; any other PenstockError is final.
- Reconnect without help. A call that meets a broken connection raises Unavailable soon, it does
  not wait for ever. `fetch` may return nothing after a second or so.
- Map names reversibly (`naming.py`) and messages by the common envelope (`envelope.py`).
- Say what the broker can do in `penstock.drivers.capabilities`, and what the desk must do for it
  in Traits.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import msgspec

from penstock.drivers.foreign.envelope import Letter
from penstock.drivers.port import Capabilities
from penstock.vocabulary.errors import PenstockError, Unsupported
from penstock.vocabulary.message import Durability
from penstock.vocabulary.policy import SubscriptionPolicy, TopicPolicy

Token = Any
"""What a carrier needs to settle one delivery; only the carrier looks into it."""


class Placed(NamedTuple):
    """What the broker said about one letter that was sent."""

    offset: int | None
    position: str
    is_duplicate: bool = False
    partition: int = 0


Outcome = Sequence[Placed] | PenstockError
"""What became of a post: where its letters are, or why they are not."""


class Sender(NamedTuple):
    """Who publishes: a letter's `sequence` belongs to it. A retry comes with the same numbers."""

    publisher: bytes
    epoch: int


class Seat(NamedTuple):
    """What a consumer asks for."""

    topic: str
    subscription: str | None
    """None = ephemeral: begins at the latest and ends with the feed."""
    policy: SubscriptionPolicy
    start: Any
    """Ephemeral: 'earliest', 'latest', Unix seconds or a position."""
    consumer: str


class Traits(msgspec.Struct, frozen=True, kw_only=True):
    """What the desk must know about a broker's deliveries."""

    has_leases: bool = True
    """The broker gives a delivery to another consumer when it was not settled or renewed in time.
    False: the desk ends leases itself, and the same consumer gets the message again."""
    has_release: bool = True
    """The broker takes a message back with a delay. False: the desk keeps it until it is due."""
    release_s_max: float | None = None
    """Longest delay the broker itself keeps; None = any. The desk renews longer ones."""
    is_release_leased: bool = False
    """The longest delay is the lease."""
    counts_attempts: bool = True
    """Letters arrive with their number of deliveries. False: the desk counts."""
    has_patterns: bool = False
    """`open_feed` takes a pattern: its letters come from many topics, named by `token.topic`.
    False: topics are listed, and those that match are joined one by one."""
    is_keyed_here: bool = False
    """Kind `key_shared`: the broker gives a partition to one consumer, the desk keeps the order of
    a key after a nack."""
    partitions_usual: int = 1
    """Partitions of a topic that is created without being asked for more."""
    has_own_map: bool = False
    """The broker's rules choose the partition of a message, not the client's."""
    orders_posts: bool = False
    """Posts are stored in the order of their calls, however many are under way, and each once."""
    takes_plain: bool = False
    """Letters may come as a list that makes them anew at each look (`plain.py`)."""
    fetch_s: float = 1.0
    """How long a fetch with nothing to bring may last."""


class Refused(NamedTuple):
    """A decision the broker did not accept."""

    letter: Letter
    why: str


class Release(NamedTuple):
    """A letter that goes back to the subscription."""

    letter: Letter
    delay_s: float
    is_unstarted: bool = False
    """The application never had it: where the broker can, its attempt is not counted."""


class TopicRow(NamedTuple):
    """A topic as the broker knows it; a count is None when the broker has none."""

    topic: str
    policy: TopicPolicy
    partitions: int = 1
    messages: int | None = 0
    bytes: int | None = 0
    published: int | None = 0
    created_at: float = 0.0
    is_set: bool = True
    """False: nobody said with us what is kept of it."""


class SubscriptionRow(NamedTuple):
    """A durable subscription as the broker knows it; a count is None when the broker has none."""

    topic: str
    subscription: str
    policy: SubscriptionPolicy
    consumers: list[str]
    waiting: int | None = None
    leased: int | None = None
    acked: int | None = None
    waiting_min: int | None = None
    """At least so many wait, where the broker does not count them all."""
    upto: str | None = None
    """The newest position that was handed out, where the broker tells it."""


class Feed(Protocol):
    """One consumer at the broker. One fetch at a time; settling may overlap with it."""

    async def fetch(self, count: int, bytes_max: int) -> list[Letter]:
        """Up to so many letters, at once when there are some; none after `Traits.fetch_s`.

        When cancelled, what was on its way must come again, at the latest when its lease ends.
        """
        ...

    async def settle(self, letters: Sequence[Letter]) -> list[Refused]:
        """Finishes deliveries, durably as far as the broker can; tells which came too late."""
        ...

    async def release(self, releases: Sequence[Release]) -> list[Refused]:
        """Gives letters back: any consumer may get them after their delay."""
        ...

    async def renew(self, letters: Sequence[Letter]) -> None:
        """Each delivery has a whole lease from now on."""
        ...

    async def bury(self, dead_topic: str, letters: Sequence[Letter]) -> list[Refused]:
        """Stores the letters in a dead-letter topic, durably, and only then finishes them.

        Raises DeadLetterFull; the letters then wait.
        """
        ...

    async def close(self) -> None:
        """Ends the consumer; everything was settled or released before. Never raises."""
        ...


@runtime_checkable
class MovingFeed(Protocol):
    """A feed whose partitions may move to another consumer while it lives."""

    def listen(self, revoking: Callable[[set[int], Callable[[], None]], None]) -> None:
        """`revoking(partitions, done)` is called on the loop before partitions are given up."""
        ...

    def note(self, letters: Sequence[Letter]) -> None:
        """These deliveries are finished; `settle` says so again. Goes with the partitions."""
        ...


class Carrier(Protocol):
    """One connection to a foreign broker."""

    @property
    def capabilities(self) -> Capabilities:
        """What this URL can do, known once it is connected."""
        ...

    @property
    def traits(self) -> Traits:
        """What the desk must do for this broker."""
        ...

    async def close(self) -> None:
        """Ends the connection. Never raises."""
        ...

    async def send(
        self, topic: str, letters: Sequence[Letter], sender: Sender | None
    ) -> list[Placed]:
        """Stores letters in their order; returns when they are as safe as the receipt will say.

        The topic exists; raises UnknownTopic when it was deleted meanwhile. Where the broker can,
        a letter whose `dedup` it has seen is not stored again. Unavailable: some may be stored, and
        the same call is repeated. Any other error: none of them is.
        """
        ...

    async def open_feed(self, seat: Seat) -> Feed:
        """A new consumer of a topic and a subscription that exist.

        Raises UnknownTopic, UnknownSubscription, PositionNotHeld.
        """
        ...

    # -- administration --------------------------------------------------------------------------

    async def find_topic(self, topic: str) -> TopicRow | None:
        """One topic; None when there is none."""
        ...

    async def put_topic(self, topic: str, partitions: int, policy: TopicPolicy) -> None:
        """Creates a topic, or changes its settings. Raises Unsupported for what it cannot keep."""
        ...

    async def drop_topic(self, topic: str) -> None:
        """Deletes a topic with its subscriptions."""
        ...

    async def list_topics(self) -> list[TopicRow]:
        """Every topic of this program, dead letters too."""
        ...

    async def list_subscriptions(self, topic: str) -> list[SubscriptionRow]:
        """The durable subscriptions of a topic."""
        ...

    async def put_subscription(
        self, topic: str, name: str, policy: SubscriptionPolicy, start: Any
    ) -> None:
        """Creates a durable subscription, or changes its policy (`start` is then ignored)."""
        ...

    async def drop_subscription(self, topic: str, name: str) -> None:
        """Deletes a subscription."""
        ...

    async def seek(self, topic: str, name: str, to: Any) -> None:
        """Moves a subscription: 'earliest', 'latest', Unix seconds or a position."""
        ...

    async def look(self, topic: str, limit: int, after: int | str | None) -> list[Letter]:
        """Held letters, oldest first, leased to nobody.

        From an offset on, or after a position; from the beginning when nothing is given.
        """
        ...

    async def remove(self, topic: str, letters: Sequence[Letter]) -> None:
        """Removes letters that `look` found, for good."""
        ...


@runtime_checkable
class PostCarrier(Protocol):
    """A carrier that can begin to send without waiting for anything."""

    def post(
        self, topic: str, letters: Sequence[Letter], sender: Sender,
        told: Callable[[Outcome], None],
    ) -> bool:  # fmt: skip
        """Begins `send`; `told` is called once, on the loop, later, with what that would return.

        False: it cannot just now, nothing was done, and `send` must be used. Never raises.
        """
        ...


@runtime_checkable
class LevelCarrier(Protocol):
    """A carrier whose topics are not equally safe."""

    def level_of(self, topic: str) -> Durability:
        """How safe a confirmed message of this topic is."""
        ...


@runtime_checkable
class PartitionCarrier(Protocol):
    """A carrier whose topics have partitions."""

    async def look_in(
        self, topic: str, partition: int, limit: int, after: int | str | None
    ) -> list[Letter]:
        """`look` in one partition."""
        ...


@runtime_checkable
class NamedCarrier(Protocol):
    """A carrier that finds one subscription without looking at all of them."""

    async def list_named(self, topic: str, name: str) -> list[SubscriptionRow]:
        """The subscription of this name, and the members of a multicast of this name."""
        ...


@runtime_checkable
class ManyCarrier(Protocol):
    """A carrier that tells many topics and their subscriptions faster than one by one."""

    async def topic_names(self) -> list[str]:
        """Every topic, by its name only."""
        ...

    async def list_many(self, topics: list[str]) -> dict[str, list[SubscriptionRow]]:
        """The durable subscriptions of each of these topics."""
        ...


@runtime_checkable
class PolicyCarrier(Protocol):
    """A carrier that keeps less of a topic's policy than it is asked to, since it needs no more."""

    def kept_policy(self, policy: TopicPolicy) -> TopicPolicy:
        """What `find_topic` tells of this policy."""
        ...


@runtime_checkable
class SwapCarrier(Protocol):
    """A carrier that changes a topic only when nobody else did meanwhile."""

    async def swap_topic(
        self, topic: str, partitions: int, policy: TopicPolicy, before: TopicRow | None
    ) -> bool:
        """`put_topic` over what `find_topic` told; False when it is another by now."""
        ...


@runtime_checkable
class OwnReaders(Protocol):
    """A carrier with readers of its own."""

    async def answer_reader(self, request: Any) -> Any:
        """Does what a request about a reader asks."""
        ...


def missing(extra: str, package: str) -> Unsupported:
    """The error for a URL whose client library is not installed."""
    return Unsupported(
        f"{extra}: URLs need the package {package!r}, which is not installed: "
        f"pip install 'penstock[{extra}]'"
    )
