"""Policies: the documented defaults, and their form on disk."""

import msgspec

from penstock.vocabulary.message import Durability, Kind
from penstock.vocabulary.policy import OnDuplicate, Retry, SubscriptionPolicy, TopicPolicy


def test_a_topic_is_synced_and_keeps_uncovered_messages_a_day_by_default() -> None:
    policy = TopicPolicy()
    assert policy.durability is Durability.SYNCED
    assert policy.retain_s == 24 * 3600
    assert policy.on_duplicate is OnDuplicate.DROP


def test_a_subscription_is_shared_at_least_once_with_leases_of_thirty_seconds_by_default() -> None:
    policy = SubscriptionPolicy()
    assert (policy.kind, policy.qos, policy.lease_s) == (Kind.SHARED, 1, 30.0)


def test_retries_double_from_half_a_second_to_a_minute_ten_times_by_default() -> None:
    retry = SubscriptionPolicy().retry
    assert (retry.first_s, retry.max_s, retry.max_attempts) == (0.5, 60.0, 10)


def test_dead_letters_are_capped_by_default() -> None:
    assert SubscriptionPolicy().dead_bytes_max == 1024**3


def test_only_what_differs_from_the_default_is_written() -> None:
    assert msgspec.to_builtins(TopicPolicy()) == {}
    assert msgspec.to_builtins(SubscriptionPolicy(lease_s=5.0)) == {"lease_s": 5.0}


def test_a_policy_comes_back_from_disk_as_it_was() -> None:
    policy = SubscriptionPolicy(lease_s=5.0, retry=Retry(first_s=0.0, max_attempts=None))
    data = msgspec.msgpack.encode(policy)
    assert msgspec.msgpack.decode(data, type=SubscriptionPolicy) == policy


def test_policies_with_the_same_settings_are_equal() -> None:
    assert TopicPolicy(retain_s=None) == TopicPolicy(retain_s=None)
    assert TopicPolicy(retain_s=None) != TopicPolicy()
