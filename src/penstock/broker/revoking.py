"""Tells consumers of kind `key_shared` what was taken from them, in the order of their slices."""

from penstock.delivery.state import Consumer, Subscription
from penstock.vocabulary.claims import Claim, Revoked
from penstock.vocabulary.records import Ranges


def answer_nack(consumer: Consumer, claim: Claim) -> None:
    """Tells a consumer that its nack is decided, and what else of the keys was taken from it.

    Under the engine's lock, right after deciding: whatever it is handed later stays with it.
    """
    keys = consumer.subscription.keys
    parts: list[tuple[int, Ranges]] = []
    if keys is not None:
        parts = [(lease_id, ranges) for _, lease_id, ranges in keys.revoked]
        keys.revoked.clear()
    _tell(consumer, Revoked(claim, tuple(parts)))


def tell_expired(subscription: Subscription) -> None:
    """Tells every consumer what ran out, and what else of the keys was taken from it."""
    keys = subscription.keys
    if keys is None or not keys.revoked:
        return
    parts: dict[Consumer, list[tuple[int, Ranges]]] = {}
    for consumer, lease_id, ranges in keys.revoked:
        parts.setdefault(consumer, []).append((lease_id, ranges))
    keys.revoked.clear()
    for consumer, each in parts.items():
        _tell(consumer, Revoked(None, tuple(each)))


def _tell(consumer: Consumer, news: Revoked) -> None:
    sink = consumer.sink
    if sink.on_revoked is not None:
        sink.mailbox.post([(sink.on_revoked, news)])
