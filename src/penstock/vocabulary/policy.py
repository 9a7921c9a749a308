"""The settings a user may choose for a topic or a subscription, with their defaults."""

from enum import StrEnum

import msgspec

from penstock.vocabulary import limits
from penstock.vocabulary.message import Durability, Kind


class OnDuplicate(StrEnum):
    """What happens when a message comes with a given id that is known."""

    DROP = "drop"
    """It is not stored again while the first one is remembered."""
    REPLACE = "replace"
    """It is stored, and older ones with this id that wait are dropped."""


class TopicPolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a topic keeps its messages. Times in seconds; `retain_s=None` means for ever.

    `max_age_s` and `max_bytes` win over everything else, and remove unacked messages too.
    """

    durability: Durability = Durability.SYNCED
    retain_s: float | None = limits.RETAIN_S_DEFAULT
    """How long a message that no durable subscription covered when published is kept."""
    dead_of: str | None = None
    """Set on dead-letter topics: `<topic>\\n<subscription>` they belong to."""
    max_bytes_refuse: int | None = None
    """`nats:` URLs: above this size new messages are refused; other URLs refuse the setting."""
    on_duplicate: OnDuplicate = OnDuplicate.DROP
    """What a message with a known id does; chosen when the topic is created."""
    replay_s: float = 0.0
    """How long after its publish a message stays although every subscription is done with it."""
    keep_last: int = 0
    """So many of the newest messages of each key stay, acked or not, whatever `retain_s` says."""
    max_age_s: float | None = None
    """A message older than this is removed, acked or not."""
    max_bytes: int | None = None
    """Above this size the oldest messages are removed, acked or not."""


class Retry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When a failed message comes back: `first_s` × 2ⁿ up to `max_s`, with jitter."""

    first_s: float = limits.BACKOFF_FIRST_S
    max_s: float = limits.BACKOFF_MAX_S
    max_attempts: int | None = limits.MAX_ATTEMPTS_DEFAULT
    """Failed attempts before the dead-letter topic; None = never."""


class SubscriptionPolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a subscription hands out its messages."""

    kind: Kind = Kind.SHARED
    qos: int = 1
    lease_s: float = limits.LEASE_S_DEFAULT
    retry: Retry = Retry()
    dead_bytes_max: int = limits.DEAD_BYTES_MAX_DEFAULT
    """Above this size of its dead-letter topic, what failed waits in the subscription."""
