"""What our policies mean to Pub/Sub, and what is refused by name."""

import pytest

from penstock.drivers.capabilities import PUBSUB
from penstock.drivers.pubsub import settings
from penstock.drivers.pubsub.names import POLICY, packed
from penstock.vocabulary.errors import Unsupported
from penstock.vocabulary.policy import Retry, SubscriptionPolicy, TopicPolicy


@pytest.mark.parametrize(
    ("policy", "name"),
    [
        (TopicPolicy(retain_s=None), "retain_s"),
        (TopicPolicy(replay_s=32 * 86_400), "replay_s"),
        (TopicPolicy(max_age_s=60), "max_age_s"),
        (TopicPolicy(keep_last=1), "keep_last"),
        (TopicPolicy(max_bytes=1), "max_bytes"),
    ],
)
def test_settings_of_a_topic_are_refused_by_name(policy: TopicPolicy, name: str) -> None:
    with pytest.raises(Unsupported, match=rf"{name} .*pubsub"):
        settings.check_topic(PUBSUB, 1, policy)


@pytest.mark.parametrize(
    ("policy", "name"),
    [(SubscriptionPolicy(lease_s=601), "lease_s"), (SubscriptionPolicy(dead_bytes_max=5), "dead_")],
)
def test_settings_of_a_subscription_are_refused_by_name(
    policy: SubscriptionPolicy, name: str
) -> None:
    with pytest.raises(Unsupported, match=rf"{name}.*pubsub"):
        settings.check_subscription(policy)


def test_a_topic_retains_as_long_as_anything_asks_for() -> None:
    settings.check_topic(PUBSUB, 1, TopicPolicy())
    assert settings.retained_s(TopicPolicy()) == 86_400
    assert settings.retained_s(TopicPolicy(retain_s=5)) == 600
    assert settings.retained_s(TopicPolicy(replay_s=200_000)) == 200_000
    assert settings.retained_s(TopicPolicy(max_age_s=3_600)) == 3_600
    assert settings.retained_s(TopicPolicy(retain_s=None, dead_of="a\nb")) == 31 * 86_400


def test_a_subscription_holds_for_31_days_or_as_long_as_the_topic_says() -> None:
    assert settings.held_s(TopicPolicy(), is_emulator=False) == 31 * 86_400
    assert settings.held_s(TopicPolicy(), is_emulator=True) == 7 * 86_400
    assert settings.held_s(TopicPolicy(max_age_s=700), is_emulator=False) == 700


def test_the_lease_and_the_count_of_a_subscription() -> None:
    assert settings.deadline_s(SubscriptionPolicy(lease_s=0.5)) == 10
    assert settings.deadline_s(SubscriptionPolicy(lease_s=30.5)) == 31
    assert settings.is_counted(SubscriptionPolicy())
    assert not settings.is_counted(SubscriptionPolicy(retry=Retry(max_attempts=None)))
    assert not settings.is_counted(SubscriptionPolicy(retry=Retry(max_attempts=100)))


def test_a_policy_is_kept_in_labels() -> None:
    policy = SubscriptionPolicy(lease_s=7.5, retry=Retry(max_attempts=3))
    labels = packed(POLICY, settings.told(policy))
    assert settings.policy_of(labels, SubscriptionPolicy) == policy
    for odd in ({}, {POLICY: "mzxw6"}, {POLICY: "!"}):
        assert settings.policy_of(odd, TopicPolicy) == TopicPolicy()
