"""Subscriptions as consumers of a stream: their names, their configuration, what it says. Pure.

A subscription of a topic with a stream of its own is the consumer of its name. A stream that holds
several subjects has several topics, whose subscriptions may have the same name: there, the name of
the consumer holds that of the topic too. A consumer is a topic's only if its filter says so.
"""

import json
from typing import Any, Final

import msgspec

from penstock.drivers.foreign.carrier import SubscriptionRow
from penstock.drivers.nats.streams import NAME, NANO, POLICY, Stream
from penstock.drivers.nats.subjects import covers, safe_name, subject_of
from penstock.vocabulary import names
from penstock.vocabulary.limits import MEMBER_IDLE_S_MAX
from penstock.vocabulary.policy import SubscriptionPolicy

AND: Final = " "
"""Between subscription and topic; neither can hold it."""


def plain_name(subscription: str) -> str:
    """The consumer of a subscription, or the note of a reader, in a stream of one topic."""
    return safe_name(subscription)


def full_name(topic: str, subscription: str) -> str:
    """The same in a stream of several topics."""
    return safe_name(f"{subscription}{AND}{topic}")


def is_of(config: dict[str, Any], stream: Stream, topic: str) -> bool:
    """True for a consumer that gets the messages of a topic, all of them and no others."""
    subject = subject_of(topic)
    filters = config.get("filter_subjects") or [config.get("filter_subject") or ">"]
    if filters == [subject]:
        return True
    return stream.is_only(subject) and any(covers(each, subject) for each in filters)


def delivery(topic: str, policy: SubscriptionPolicy) -> dict[str, Any]:
    """How a new consumer delivers."""
    return {
        "ack_policy": "explicit",
        "ack_wait": _lease(policy),
        "max_deliver": -1,
        "max_ack_pending": -1,
        "filter_subject": subject_of(topic),
        "replay_policy": "instant",
    }


def durable(
    consumer: str, topic: str, subscription: str, policy: SubscriptionPolicy
) -> dict[str, Any]:
    """The configuration of a new durable consumer, without its start."""
    config = {
        "name": consumer,
        "durable_name": consumer,
        **delivery(topic, policy),
        "metadata": {NAME: subscription, POLICY: _said(policy)},
    }
    if names.MEMBER_MARK in subscription:
        config["inactive_threshold"] = int(MEMBER_IDLE_S_MAX * NANO)
    return config


def changed(
    config: dict[str, Any], subscription: str, policy: SubscriptionPolicy
) -> dict[str, Any]:
    """The configuration with another policy; what is none of ours stays, whoever set it."""
    metadata = {**(config.get("metadata") or {}), NAME: subscription, POLICY: _said(policy)}
    return {**config, "ack_wait": _lease(policy), "metadata": metadata}


def subscription_row(topic: str, row: dict[str, Any]) -> SubscriptionRow:
    """A subscription in what the server tells of its consumer."""
    config = row["config"]
    metadata = config.get("metadata") or {}
    said = metadata.get(POLICY)
    policy = (
        msgspec.convert(json.loads(said), SubscriptionPolicy)
        if said
        else SubscriptionPolicy(lease_s=config.get("ack_wait", 30 * NANO) / NANO)
    )
    consumers = [f"pull-{number}" for number in range(1, row.get("num_waiting", 0) + 1)]
    return SubscriptionRow(
        topic, metadata.get(NAME, config["durable_name"]), policy, consumers,
        row.get("num_pending"), row.get("num_ack_pending"), None,
    )  # fmt: skip


def _said(policy: SubscriptionPolicy) -> str:
    return json.dumps(msgspec.to_builtins(policy))


def _lease(policy: SubscriptionPolicy) -> int:
    return max(1, int(policy.lease_s * NANO))
