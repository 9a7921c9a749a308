"""What a call of `subscribe` asks for, checked before anything is sent."""

import os
from itertools import count
from typing import Any, Final

from penstock.client.administration import made
from penstock.client.deliveries import Deliveries
from penstock.client.following import PatternDeliveries
from penstock.client.handlers import Subscribing
from penstock.client.keyed import KeyedDeliveries
from penstock.client.keyed_following import KeyedPatternDeliveries
from penstock.client.reader import refuse_reader
from penstock.drivers.port import Capabilities
from penstock.vocabulary import names
from penstock.vocabulary.errors import InvalidArgument, Unsupported
from penstock.vocabulary.filters import check_filter, is_pattern
from penstock.vocabulary.limits import CREDIT_MAX
from penstock.vocabulary.message import Kind
from penstock.vocabulary.places import check_place
from penstock.vocabulary.policy import SubscriptionPolicy
from penstock.vocabulary.wishes import Wish

_consumer_numbers: Final = count(1)


def class_for(wish: Wish) -> type[Deliveries]:
    """The deliveries that know this kind, over one topic or many."""
    if wish.policy is not None and wish.policy.kind is Kind.KEY_SHARED:
        return KeyedPatternDeliveries if is_pattern(wish.topic) else KeyedDeliveries
    return PatternDeliveries if is_pattern(wish.topic) else Deliveries


def wish_of(asked: Subscribing, can: Capabilities | None) -> tuple[Wish, dict[str, Any]]:
    """What to ask the driver for, and which settings were given. Raises UsageError."""
    topic, subscription, options = asked
    check_filter(topic, reserved=True)
    if subscription is not None:
        names.check_subscription(subscription)
    given = {name: value for name, value in options.items() if name != "stalled_s"}
    start, credit, credit_bytes = given.pop("start"), given.pop("credit"), given.pop("credit_bytes")
    named = given.pop("consumer")
    consumer = named or f"consumer-{os.getpid()}-{next(_consumer_numbers)}"
    names.check_consumer(consumer)
    if start is not None:
        check_place("start", start, has_own_positions=can is None or can.has_own_positions)
    _check_count("credit", credit, CREDIT_MAX)
    _check_count("credit_bytes", credit_bytes, 1 << 62)
    kind, qos = _kind(given.pop("kind")), given.pop("qos")
    refuse_reader(kind)
    if can is not None and kind not in can.kinds:
        raise Unsupported(
            f"subscription kind {kind.value!r} is not available on {can.scheme}: URLs; use "
            + " or ".join(repr(each.value) for each in can.kinds)
        )
    if can is not None and qos not in can.qos:
        known = " or ".join(map(str, can.qos))
        raise Unsupported(f"qos {qos!r} is not available on {can.scheme}: URLs; use {known}")
    if can is not None and is_pattern(topic) and not can.has_patterns:
        raise Unsupported(f"a pattern of topics is not available on {can.scheme}: URLs")
    policy: SubscriptionPolicy = made(SubscriptionPolicy, {"kind": kind, "qos": qos, **given})
    wish = Wish(topic, subscription, policy, start, credit, credit_bytes, consumer, bool(named))
    return wish, given


def _kind(kind: Any) -> Kind:
    try:
        return Kind(kind)
    except ValueError:
        known = ", ".join(repr(each.value) for each in Kind)
        raise InvalidArgument(f"unknown subscription kind {kind!r}; known: {known}") from None


def _check_count(name: str, value: Any, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= high:
        raise InvalidArgument(f"{name} must be a whole number from 1 to {high}, not {value!r}")
