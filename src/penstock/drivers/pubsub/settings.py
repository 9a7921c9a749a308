"""What our policies mean in the settings of Pub/Sub, and what it cannot keep. Pure."""

from typing import Any, Final

import msgspec

from penstock.drivers import capabilities
from penstock.drivers.port import Capabilities
from penstock.drivers.pubsub.holding import whole_seconds
from penstock.drivers.pubsub.names import POLICY, unpacked
from penstock.vocabulary.errors import Unsupported
from penstock.vocabulary.limits import DEAD_BYTES_MAX_DEFAULT
from penstock.vocabulary.policy import SubscriptionPolicy, TopicPolicy

MINUTE: Final = 60
DAY: Final = 24 * 60 * MINUTE
RETAIN_S_MIN: Final = 10 * MINUTE
RETAIN_S_MAX: Final = 31 * DAY
EMULATED_S_MAX: Final = 7 * DAY
"""An emulator lets a subscription hold messages no longer."""
DEADLINE_S_MIN: Final = 10
DEADLINE_S_MAX: Final = 600
COUNTED_MAX: Final = 100
"""Pub/Sub counts attempts up to this, for a subscription that has a dead-letter topic."""


def check_topic(can: Capabilities, partitions: int, policy: TopicPolicy) -> None:
    """Raises Unsupported for settings that Pub/Sub cannot keep."""
    capabilities.check_topic_policy(can, partitions, policy)
    if policy.dead_of is not None:
        return
    for name in ("retain_s", "replay_s"):
        length = getattr(policy, name)
        if length is None or length > RETAIN_S_MAX:
            raise Unsupported(
                f"topic setting {name} is at most {RETAIN_S_MAX} on pubsub: URLs, which is 31 days"
            )
    age = policy.max_age_s
    if age is not None and not RETAIN_S_MIN <= age <= RETAIN_S_MAX:
        raise Unsupported(
            f"topic setting max_age_s is {RETAIN_S_MIN} to {RETAIN_S_MAX} on pubsub: URLs, not "
            f"{age:g}"
        )


def retained_s(policy: TopicPolicy) -> float:
    """How long a topic retains its messages, acked or not."""
    if policy.dead_of is not None:
        return RETAIN_S_MAX
    length = max(policy.retain_s or RETAIN_S_MAX, policy.replay_s, RETAIN_S_MIN)
    return min(length, policy.max_age_s or RETAIN_S_MAX, RETAIN_S_MAX)


def held_s(policy: TopicPolicy, *, is_emulator: bool) -> float:
    """How long a subscription holds what nobody acked."""
    longest = EMULATED_S_MAX if is_emulator else RETAIN_S_MAX
    return min(policy.max_age_s or longest, longest)


def check_subscription(policy: SubscriptionPolicy) -> None:
    """Raises Unsupported for settings that Pub/Sub cannot keep."""
    if policy.lease_s > DEADLINE_S_MAX:
        raise Unsupported(
            f"subscription setting lease_s is at most {DEADLINE_S_MAX} on pubsub: URLs, not "
            f"{policy.lease_s:g}; extend() makes single leases longer"
        )
    if policy.dead_bytes_max != DEAD_BYTES_MAX_DEFAULT:
        raise Unsupported(
            "subscription setting dead_bytes_max is not available on pubsub: URLs, where nobody "
            "knows the size of a topic; leave it out"
        )


def deadline_s(policy: SubscriptionPolicy) -> int:
    """The lease a subscription gives by itself."""
    return max(DEADLINE_S_MIN, whole_seconds(policy.lease_s))


def is_counted(policy: SubscriptionPolicy) -> bool:
    """Whether Pub/Sub counts attempts: it makes dead letters at the end of its count."""
    limit = policy.retry.max_attempts
    return limit is not None and limit < COUNTED_MAX


def policy_of(labels: Any, kind: Any) -> Any:
    """The policy that labels keep; the usual one when they keep none."""
    data = unpacked(POLICY, labels)
    if data is None:
        return kind()
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return kind()


def told(policy: Any) -> bytes:
    """A policy as labels keep it."""
    return msgspec.msgpack.encode(msgspec.to_builtins(policy))
