"""What each kind of URL can do, as data: the matrix is the contract.

`N` native, `E` emulated by the client, `R` refused by name when the program asks for it. Cells
have notes where a word is needed. `penstock capabilities` prints it; the contract suite tests
every cell.
"""

from enum import StrEnum
from typing import Final, NamedTuple

from penstock.drivers.port import Capabilities
from penstock.vocabulary.errors import Unsupported
from penstock.vocabulary.message import Durability, Kind
from penstock.vocabulary.policy import TopicPolicy


class Support(StrEnum):
    """How a broker does something."""

    NATIVE = "N"
    EMULATED = "E"
    REFUSED = "R"


class Cell(NamedTuple):
    """One broker, one capability."""

    support: Support
    note: str = ""

    @property
    def text(self) -> str:
        """For people."""
        return f"{self.support.value}, {self.note}" if self.note else self.support.value


def _cell(text: str) -> Cell:
    letter, _, note = text.partition(" ")
    return Cell(Support(letter), note)


ROWS: Final = {
    "kept": "kept with no subscription",
    "held": "held until all acked",
    "shared": "shared",
    "nack_delay": "nack(delay)",
    "attempts": "attempt survives a crash",
    "lease_moves": "lease expiry moves the message",
    "extend": "lease extension",
    "key_shared": "key_shared",
    "multicast": "multicast",
    "dead_letters": "dead letter durable first",
    "dedup": "dedup by given id",
    "stale_ack": "stale ack refused",
    "transactions": "transaction(), QoS 2",
    "priority": "priority other than 0",
    "deliver_at": "deliver_at",
    "expires_at": "expires_at",
    "reader": "reader, Spark",
    "patterns": "pattern filter",
    "headers": "headers; absent body",
    "partitions": "more than one partition",
    "replay": "start in the past",
}
"""Every capability, by the name programs use, and its title."""

SCHEMES: Final = ("penstock", "kafka", "nats", "pubsub", "redis", "mqtt", "kubemq")
"""The columns; `penstock` stands for `file:` and `memory:` too."""

_TABLE: Final = {
    "kept": (
        "N", "N", "N", "E topic retention", "N", "R PUBACK 0x10", "N for the first subscription",
    ),
    "held": (
        "N", "R by time or size", "R a limits stream keeps everything until its limits",
        "N up to 31 days", "E trimmed to the lowest unacked", "E in the session only",
        "E a queue for each subscription",
    ),
    "shared": (
        "N", "E the client tracks acks and commits the floor; one consumer for a partition", "N",
        "N", "N", "E connected members only", "N",
    ),
    "nack_delay": (
        "N", "E same consumer", "N", "N up to 600 s",
        "E up to the lease; longer while the consumer lives", "E same process",
        "E sent back when due; the server knows no delay",
    ),
    "attempts": ("N", "E commit metadata", "N", "E approximate", "N", "R", "N"),
    "lease_moves": (
        "N", "R death of the consumer does", "N", "N", "E taken over from the pending list", "R",
        "E given back by its consumer, or when the connection ends",
    ),
    "extend": (
        "N", "E no lease; keeps polling", "N", "N", "E idle time set back", "E no lease",
        "E by its consumer",
    ),
    "key_shared": (
        "N", "N per partition", "R", "N ordering key, one at a time", "R", "R", "R",
    ),
    "multicast": (
        "N", "E group for each named consumer", "E durable for each named consumer",
        "E subscription for each named consumer", "E group for each named consumer", "N",
        "E queue for each named consumer",
    ),
    "dead_letters": (
        "N", "E produce, then commit", "E publish, then ack", "E publish, then ack",
        "E one script moves it", "E dead=file: in the URL", "E send, then ack",
    ),
    "dedup": ("N", "R", "N for 600 s", "R", "E for 600 s", "R", "R"),
    "stale_ack": ("N", "N generation", "R", "N with exactly-once", "E", "R", "R"),
    "transactions": ("N", "N Kafka to Kafka", "R", "R", "E one node", "R QoS 2 for each hop", "R"),
    "priority": ("N", "R", "R", "R", "R", "R", "R"),
    "deliver_at": ("N", "R", "E sent back until due", "R", "R", "R", "N"),
    "expires_at": (
        "N", "E skipped and counted", "N from 2.11 on, in seconds; exact by the client", "E",
        "E skipped and counted", "N version 5; 3.1.1 refused", "N",
    ),
    "reader": (
        "N", "N Spark's own connector", "N", "R through bridge", "N", "R through bridge", "R",
    ),
    "patterns": (
        "N", "E", "E new topics found within a second", "R", "R", "N only / separates levels", "R",
    ),
    "headers": (
        "N", "N refused on compacted topics", "N marker for an absent body",
        "N values up to 1,024 B; marker", "N", "N version 5 marker; 3.1.1 refused", "N tags",
    ),
    "partitions": ("N", "N", "R", "R", "R", "R", "R"),
    "replay": ("N", "N", "N", "N at a time, not at a position", "N", "R", "R"),
}  # fmt: skip

MATRIX: Final[dict[str, dict[str, Cell]]] = {
    scheme: {row: _cell(cells[at]) for row, cells in _TABLE.items()}
    for at, scheme in enumerate(SCHEMES)
}
"""Scheme → capability → cell."""

_FLAGS: Final = {
    "dead_letters": "has_dead_letters",
    "dedup": "has_dedup",
    "transactions": "has_transactions",
    "priority": "has_priority",
    "deliver_at": "has_delay",
    "expires_at": "has_expiry",
    "reader": "has_readers",
    "patterns": "has_patterns",
    "headers": "has_headers",
    "replay": "has_replay",
}
"""Capability → what tells whether this very URL has it, since an option may take it away."""


def cells_of(can: Capabilities) -> dict[str, Cell]:
    """The column of one URL: that of its kind, with what this URL lacks refused."""
    column = MATRIX.get(can.scheme, MATRIX["penstock"])
    return {
        row: cell if _has_flag(can, row) else Cell(Support.REFUSED, cell.note)
        for row, cell in column.items()
    }


def has(can: Capabilities, row: str) -> bool:
    """Whether a URL does something."""
    return cells_of(can)[row].support is not Support.REFUSED


def _has_flag(can: Capabilities, row: str) -> bool:
    if row in (Kind.SHARED.value, Kind.KEY_SHARED.value, Kind.MULTICAST.value):
        return Kind(row) in can.kinds
    return row not in _FLAGS or bool(getattr(can, _FLAGS[row]))


LEVELS: Final = {
    "penstock": "synced; memory: gives memory",
    "kafka": "replicated if min.insync.replicas is 2 or more and acks=all, else written; acks=none "
    "memory",
    "nats": "written",
    "pubsub": "replicated",
    "redis": "no append-only file memory, everysec written, always synced",
    "mqtt": "memory",
    "kubemq": "memory",
}
"""Scheme → how safe a confirmed message is."""

NATS: Final = Capabilities(
    scheme="nats",
    durability=Durability.WRITTEN,
    kinds=(Kind.SHARED, Kind.MULTICAST),
    qos=(1,),
    has_delay=True,
    has_expiry=True,
    has_dedup=True,
    has_patterns=True,
    topic_settings=("max_age_s", "max_bytes", "replay_s", "max_bytes_refuse"),
)
MQTT: Final = Capabilities(
    scheme="mqtt",
    durability=Durability.MEMORY,
    kinds=(Kind.SHARED, Kind.MULTICAST),
    qos=(0, 1, 2),
    has_replay=False,
    has_readers=False,
    can_peek_all=False,
    has_expiry=True,
    has_patterns=True,
    topic_settings=("keep_last",),
    has_last=False,
)
KAFKA: Final = Capabilities(
    scheme="kafka",
    durability=Durability.WRITTEN,
    kinds=(Kind.SHARED, Kind.KEY_SHARED, Kind.MULTICAST),
    qos=(0, 1, 2),
    has_expiry=True,
    has_transactions=True,
    has_patterns=True,
    topic_settings=("durability", "retain_s", "replay_s", "max_age_s", "max_bytes", "keep_last"),
)
REDIS: Final = Capabilities(
    scheme="redis",
    durability=Durability.MEMORY,
    kinds=(Kind.SHARED, Kind.MULTICAST),
    qos=(0, 1, 2),
    has_own_positions=True,
    has_expiry=True,
    has_dedup=True,
    has_transactions=True,
    topic_settings=("retain_s", "replay_s", "max_age_s"),
)
PUBSUB: Final = Capabilities(
    scheme="pubsub",
    durability=Durability.REPLICATED,
    kinds=(Kind.SHARED, Kind.KEY_SHARED, Kind.MULTICAST),
    qos=(1,),
    has_own_positions=True,
    has_readers=False,
    has_expiry=True,
    topic_settings=("retain_s", "replay_s", "max_age_s"),
    has_last=False,
)
KUBEMQ: Final = Capabilities(
    scheme="kubemq",
    durability=Durability.MEMORY,
    kinds=(Kind.SHARED, Kind.MULTICAST),
    qos=(1,),
    has_replay=False,
    has_readers=False,
    can_peek_all=False,
    has_delay=True,
    has_expiry=True,
    topic_settings=(),
    has_last=False,
)


def check_topic_policy(
    can: Capabilities, partitions: int, policy: TopicPolicy, besides: tuple[str, ...] = ()
) -> None:
    """Raises Unsupported for a setting of a topic that a broker cannot keep.

    `besides` are settings that this topic may have, other than the broker's `topic_settings`.
    """
    if partitions != 1:
        raise Unsupported(
            f"{can.scheme}: topics have one partition, not {partitions}: leave partitions at 1"
        )
    usual = TopicPolicy()
    for name in TopicPolicy.__struct_fields__:
        is_known = name in (*can.topic_settings, *besides, "dead_of") or getattr(
            policy, name
        ) == getattr(usual, name)
        if not is_known:
            raise Unsupported(
                f"topic setting {name} is not available on {can.scheme}: URLs; leave it out"
            )
