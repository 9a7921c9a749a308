"""What a consumer asks for when it joins a subscription."""

from typing import Any, NamedTuple

from penstock.vocabulary.claims import Returning
from penstock.vocabulary.policy import SubscriptionPolicy


class Wish(NamedTuple):
    """What a consumer asks for when it attaches."""

    topic: str
    subscription: str | None
    policy: SubscriptionPolicy | None
    """None = whatever the subscription has; the default for a new one."""
    start: Any
    credit: int
    credit_bytes: int
    consumer: str
    is_named: bool = False
    """The application chose the consumer's name: kind `multicast` remembers it."""
    returning: Returning | None = None
    """Set when this consumer was attached before and its connection ended without a word."""
