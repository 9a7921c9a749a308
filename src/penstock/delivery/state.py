"""The broker's state: topics, partitions, subscriptions, cursors; and, volatile, consumers, leases.

Durable fields change only in `apply`. Fields under a "volatile" comment are rebuilt or empty
after a restart. Objects are small on purpose: there may be 100,000 topics.
"""

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from penstock.delivery.dedup import Window
from penstock.delivery.keeping import Keeping
from penstock.delivery.pending import Pending
from penstock.delivery.ranges import RangeMap, RangeSet, mask_runs
from penstock.delivery.sizes import Sizes
from penstock.delivery.traits import Traits
from penstock.vocabulary.claims import Kept
from penstock.vocabulary.message import Kind
from penstock.vocabulary.names import MEMBER_MARK
from penstock.vocabulary.policy import SubscriptionPolicy, TopicPolicy
from penstock.vocabulary.records import PatternCreated, Placed, Settled, partition_key

if TYPE_CHECKING:
    from penstock.delivery.keyed import Keys
    from penstock.delivery.line import Line
    from penstock.delivery.returning import Awaiting

Shared = TypeVar("Shared")


class Trial(NamedTuple):
    """What is known of the attempts on a delivered, unfinished message."""

    attempt: int = 0
    """Deliveries so far."""
    counted: int = 0
    """Those that count toward `max_attempts`."""
    losses: int = 0
    """Times its consumer vanished with it."""
    slice: int = 0
    """Messages in the slice it was last delivered in."""
    out: int = 0
    """0 = with the broker, 1 = out with others, 2 = out alone."""


UNTRIED = Trial()


class Publisher:
    """How far one publisher got in one partition."""

    __slots__ = ("base", "decided", "epoch", "first", "former", "last", "used_at")

    def __init__(self, epoch: int, used_at: int) -> None:
        self.epoch = epoch
        self.last = -1
        """Highest sequence that is durable."""
        self.first = -1
        """First sequence of the newest durable batch, stored at `base`."""
        self.base = -1
        self.used_at = used_at
        # volatile
        self.decided = -1
        self.former: Publisher | None = None
        """What is durable of an earlier epoch, while nothing of this one is."""

    def durable(self) -> "Publisher | None":
        """The newest epoch of which something is durable."""
        return self if self.last >= 0 else self.former


class Partition:
    """One ordered slice of a topic."""

    __slots__ = (
        "aimed", "held", "held_bytes", "index", "keeping", "key", "lost", "mean_bytes",
        "newest_at", "next_offset", "publishers", "released", "reserved", "retained", "seen",
        "setbacks", "sizes", "taken", "topic", "traits", "unordered",
    )  # fmt: skip

    def __init__(self, topic: "Topic", index: int) -> None:
        self.topic = topic
        self.index = index
        self.key = partition_key(topic.id, index)
        self.next_offset = 0
        self.released = RangeSet()
        self.retained: list[list[int]] | None = None
        """[start, end, newest publish time ms] of messages no durable cursor covered."""
        self.taken: list[list[int]] | None = None
        """The same of those that a durable cursor took over later; some may be gone since."""
        self.publishers: dict[bytes, Publisher] | None = None
        self.lost: RangeSet | None = None
        self.aimed: RangeSet | None = None
        """Held messages sent to one subscription only (redrive): later ones start without them."""
        self.traits: Traits | None = None
        """Keys, priorities and times of the held messages that have any."""
        self.seen: Window | Pending | None = None
        """Given ids: those of a window, or all that wait where newer messages replace older."""
        self.keeping: Keeping | None = None
        """Only in topics whose policy keeps or removes more than acks and `retain_s` do."""
        self.held = 0
        """Messages not released."""
        self.held_bytes = 0
        self.sizes: Sizes | None = None
        """What each of them takes; None when there are none."""
        self.newest_at = 0
        """Publish time of the newest message."""
        self.setbacks: list[int] | None = None
        """Offsets of messages that were published before the one in front of them."""
        self.unordered = 0
        """Below this offset publish times went back too often to be remembered."""
        # volatile
        self.reserved = 0
        """Offset the next decided publish gets; `next_offset` follows when it is durable."""
        self.mean_bytes = 256


class Growth(NamedTuple):
    """What a topic was before it got more partitions."""

    partitions: int
    ends: tuple[int, ...]
    """Where each of these partitions ended."""
    at: int
    """Wall ms."""


class Topic:
    """A named sequence of messages."""

    __slots__ = (
        "applied", "created_at", "growing", "growth", "id", "is_pending", "is_removing", "map",
        "multicasts", "name", "partitions", "policy", "subscriptions", "turn",
    )  # fmt: skip

    def __init__(self, topic_id: int, name: str, policy: TopicPolicy, created_at: int) -> None:
        self.id = topic_id
        self.name = name
        self.policy = policy
        self.created_at = created_at
        self.partitions: list[Partition] = []
        self.subscriptions: dict[str, Subscription] | None = None
        self.multicasts: dict[str, Subscription] | None = None
        """Multicast subscriptions: no cursor of their own; members are among `subscriptions`."""
        self.applied = 0
        """Position of the last record applied to this topic."""
        self.growth: list[Growth] | None = None
        """Every time it got more partitions, oldest first."""
        # volatile
        self.map = self.partitions
        """The partitions publishes are spread over: growth counts here once it is decided."""
        self.growing: tuple[Growth, ...] = ()
        """What is decided of `growth` and not yet durable."""
        self.is_pending = True
        self.is_removing = False
        self.turn = 0

    def durable_subscriptions(self) -> "list[Subscription]":
        """Subscriptions that hold messages."""
        if not self.subscriptions:
            return []
        return [s for s in self.subscriptions.values() if s.is_durable and not s.is_pending]

    def every_subscription(self) -> "list[Subscription]":
        """Durable and ephemeral ones that exist."""
        if not self.subscriptions:
            return []
        return [s for s in self.subscriptions.values() if not s.is_pending]


class Subscription:
    """A durable, named cursor on a topic (or an ephemeral one)."""

    __slots__ = (
        "awaiting", "consumers", "created_at", "cursors", "forgotten", "id", "is_durable",
        "is_pending", "is_removing", "is_saving", "keys", "name", "policy", "reader", "seeks",
        "seen_at", "topic", "turn",
    )  # fmt: skip

    def __init__(
        self, topic: Topic, subscription_id: int, name: str, policy: SubscriptionPolicy,
        created_at: int, *, is_durable: bool,
    ) -> None:  # fmt: skip
        self.topic = topic
        self.id = subscription_id
        self.name = name
        self.policy = policy
        self.created_at = created_at
        self.cursors: list[Cursor] = []
        self.seen_at = created_at
        """Members of a multicast: wall time at which its last consumer left."""
        self.forgotten = 0
        """Multicasts: messages dropped with members that stayed away too long."""
        self.reader: Reader | None = None
        """How far it got, when it is of kind `reader` and was opened."""
        # volatile
        self.is_durable = is_durable
        self.is_pending = True
        self.is_removing = False
        self.is_saving = False
        """A consumer may be making room for a message that goes alone."""
        self.consumers: list[Consumer] | None = None
        self.keys: Keys | None = None
        """Kind `key_shared`: who holds which keys."""
        self.seeks = 0
        """Seeks that are decided and not yet durable: nothing is handed out meanwhile."""
        self.awaiting: Awaiting | None = None
        """Consumers attached before the broker stopped: nothing is handed out until they return."""
        self.turn = 0

    @property
    def connected(self) -> "list[Consumer]":
        """Its consumers without those that lost their connection."""
        return [each for each in self.consumers or () if not each.away_until]

    @property
    def is_parent(self) -> bool:
        """True for a multicast itself, which has members and no cursors."""
        return self._is_multicast and MEMBER_MARK not in self.name

    @property
    def is_member(self) -> bool:
        """True for one named consumer's part of a multicast."""
        return self._is_multicast and MEMBER_MARK in self.name

    @property
    def _is_multicast(self) -> bool:
        return self.policy.kind is Kind.MULTICAST and self.is_durable


class Cursor:
    """One subscription's place in one partition."""

    __slots__ = (
        "acked", "attached", "begin", "dead", "delayed", "done", "doomed", "dropped", "expired",
        "finished", "isolated", "leased", "line", "moving", "next", "otherwise",
        "partition", "ready", "reasons", "settling", "strict_below", "subscription", "trials",
        "voided",
    )  # fmt: skip

    def __init__(self, subscription: Subscription, partition: Partition, start: int) -> None:
        self.subscription = subscription
        self.partition = partition
        self.done = RangeSet(start)
        self.trials: RangeMap | None = None
        self.delayed: list[tuple[int, int, int, int, int]] | None = None
        """(due monotonic ms, start, end, due wall ms, delay ms), sorted."""
        self.reasons: dict[int, tuple[str, str]] | None = None
        """offset → (last reason, consumer)."""
        self.doomed: RangeSet | None = None
        """On the way to the dead-letter topic."""
        self.begin = start
        """Nothing below was ever attached."""
        self.otherwise: RangeMap | None = None
        """How finished messages that are still held ended, where it was not by an ack."""
        self.finished: RangeMap | None = None
        """QoS 2: (attempt,) that finished a message, where it was not the first."""
        self.voided = 0
        """Leases with smaller numbers ended with a seek."""
        self.attached = 0
        self.acked = 0
        self.dead = 0
        self.expired = 0
        self.dropped = 0
        # volatile
        self.next = start
        """Everything at or above was never offered since the broker started."""
        self.ready: list[tuple[int, int]] | None = None
        """Ranges below `next` to offer again, oldest first."""
        self.line: Line | None = None
        """What waits when it is not simply handed out as it came."""
        self.isolated: list[tuple[int, int]] | None = None
        """Ranges to offer only to a consumer that holds nothing else."""
        self.strict_below = 0
        """Below this, a delivery is written before it is handed over."""
        self.leased = 0
        self.settling = 0
        """Decided, not yet durable: neither leased nor waiting."""
        self.moving: set[int] | None = None
        """Start offsets of doomed messages whose move is decided."""

    def trial(self, offset: int) -> Trial:
        """What is known of one message's attempts."""
        found = self.trials.get(offset) if self.trials else None
        return UNTRIED if found is None else Trial(*found)


class Reader:
    """The owner of a subscription of kind `reader`, and its place in each partition."""

    __slots__ = ("next_planned", "next_progress", "opening", "owner", "planned", "progress",
                 "retired")  # fmt: skip

    def __init__(self, progress: list[int]) -> None:
        self.owner = ""
        self.retired: list[str] = []
        """Former owners, oldest first."""
        self.progress = progress
        """Everything below is finished."""
        self.planned = list(progress)
        """Ends of the planned ranges, which start at `progress`."""
        # volatile
        self.opening: list[str] = []
        """Owners decided and not yet durable."""
        self.next_progress = list(progress)
        self.next_planned = list(progress)
        """The same as decided, durable or not."""


class Consumer:
    """One connected reader of a subscription. All volatile."""

    __slots__ = (
        "away_until", "credit", "credit_bytes", "deadline", "former", "generation", "id",
        "is_attached", "is_gone", "is_isolated", "is_saving", "kept", "leases", "name",
        "outstanding", "outstanding_bytes", "pending_reads", "pending_strict", "sink",
        "subscription",
    )  # fmt: skip

    def __init__(
        self, consumer_id: int, name: str, subscription: Subscription, credit: int,
        credit_bytes: int, sink: Any,
    ) -> None:  # fmt: skip
        self.id = consumer_id
        self.name = name
        self.subscription = subscription
        self.credit = credit
        self.credit_bytes = credit_bytes
        self.sink = sink
        self.outstanding = 0
        self.outstanding_bytes = 0
        self.leases: dict[int, Lease] = {}
        self.deadline = 0
        """No lease of this consumer ends earlier."""
        self.is_attached = False
        self.is_gone = False
        self.is_isolated = False
        self.is_saving = False
        """Gets nothing new until it holds nothing: an isolated message waits for it."""
        self.pending_reads = 0
        self.pending_strict = 0
        """Slices that wait until their Delivered record is durable."""
        self.away_until = 0
        """Monotonic ms until which what it holds waits for its connection; 0 = it is connected."""
        self.generation = 0
        """The start of the broker that attached it."""
        self.former: tuple[int, int] | None = None
        """(generation, id) it returned with."""
        self.kept: list[Kept] = []
        """What it still holds of what it had before it returned."""

    @property
    def free(self) -> int:
        """Messages it may still be handed."""
        if not self.is_attached or self.is_gone or self.is_isolated or self.is_saving:
            return 0
        if self.outstanding_bytes >= self.credit_bytes:
            return 0
        return self.credit - self.outstanding


class Lease:
    """One slice of one partition in one consumer's hands."""

    __slots__ = (
        "attempt", "bytes_each", "consumer", "count", "cursor", "deadline", "end", "id", "is_alone",
        "is_out", "kept", "marks", "open", "passed", "start",
    )  # fmt: skip

    def __init__(
        self, lease_id: int, consumer: Consumer, cursor: Cursor, start: int, end: int,
        attempt: int, deadline: int,
    ) -> None:  # fmt: skip
        self.id = lease_id
        self.consumer = consumer
        self.cursor = cursor
        self.start = start
        self.end = end
        self.attempt = attempt
        self.deadline = deadline
        self.count = end - start
        self.open: int | None = None
        """Bits of the unfinished messages; None = all of them."""
        self.marks: list[tuple[int, int]] | None = None
        """(offset, deadline): messages below offset were not renewed past that deadline."""
        self.kept: dict[int, int] | None = None
        """offset → deadline of messages that were given more time one by one."""
        self.passed = start
        """Everything below has run out, except what is in `kept`."""
        self.bytes_each = 0
        self.is_alone = False
        self.is_out = True

    def mask(self) -> int:
        """Bits of the unfinished messages."""
        return (1 << (self.end - self.start)) - 1 if self.open is None else self.open

    def unfinished(self) -> list[tuple[int, int]]:
        """Ranges of the unfinished messages."""
        if self.open is None:
            return [(self.start, self.end)]
        return bit_ranges(self.open, self.start)


class UnitBook:
    """The units one publisher committed: what a retry of them is answered."""

    __slots__ = ("decided", "decided_epoch", "epoch", "newest", "places", "used_at")

    def __init__(self, epoch: int, used_at: int) -> None:
        self.epoch = epoch
        self.newest = -1
        """Highest sequence that is durable."""
        self.places: dict[int, tuple[Placed, ...]] = {}
        """sequence → where its batches are, of the newest units."""
        self.used_at = used_at
        # volatile
        self.decided: dict[tuple[int, int], list[tuple[Cursor, Settled]]] = {}
        """(epoch, sequence) of units not yet durable → messages they settle."""
        self.decided_epoch = epoch


class State:
    """Everything the broker knows."""

    def __init__(self) -> None:
        self.topics: dict[int, Topic] = {}
        self.names: dict[str, Topic] = {}
        self.subscriptions: dict[int, Subscription] = {}
        self.multicasts: dict[int, Subscription] = {}
        """Those of `subscriptions` that have members instead of cursors."""
        self.patterns: dict[tuple[str, str], PatternCreated] = {}
        """(pattern, name) → subscriptions over every topic that matches, as decided."""
        self.durable_patterns: dict[tuple[str, str], PatternCreated] = {}
        """The same as far as it is durable."""
        self.next_topic_id = 1
        self.next_subscription_id = 1
        self.next_consumer_id = 1
        self.next_lease_id = 1
        self.generation = 0
        self.attached: dict[int, tuple[int, str, int, int]] = {}
        """Consumers attached in the log: id → (subscription id, name, generation, former id)."""
        self.shared: dict[object, object] = {}
        """One object for each policy and subscription name in use: most are the same."""
        self.units: dict[bytes, UnitBook] = {}
        """publisher → its newest units."""
        self.written_topics = 0
        """How many topics have durability `written`."""
        self.ignore_unknown_upto = 0
        """Records before this position may speak of topics deleted while the snapshot was made."""

    def share(self, value: Shared) -> Shared:
        """The one object that stands for all equal values."""
        return cast("Shared", self.shared.setdefault(value, value))

    def is_leaving(self, topic_id: int) -> bool:
        """True for a topic that is gone, or will be when its deletion is durable."""
        topic = self.topics.get(topic_id)
        return topic is None or topic.is_removing

    def next_ids(self) -> tuple[int, int, int]:
        """Numbers that were never used, for a snapshot."""
        return self.next_topic_id, self.next_subscription_id, self.next_consumer_id

    def set_next_ids(self, ids: tuple[int, int, int]) -> None:
        """From a snapshot."""
        self.next_topic_id = max(self.next_topic_id, ids[0])
        self.next_subscription_id = max(self.next_subscription_id, ids[1])
        self.next_consumer_id = max(self.next_consumer_id, ids[2])


def bit_ranges(mask: int, base: int) -> list[tuple[int, int]]:
    """The runs of ones in `mask`, as offset ranges from `base`."""
    return list(mask_runs(mask, base))
