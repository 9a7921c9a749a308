import pytest

from penstock.vocabulary.errors import InvalidArgument
from penstock.vocabulary.message import Durability, Kind
from penstock.vocabulary.policy import Retry, SubscriptionPolicy, TopicPolicy
from penstock.wire import rest_requests as r
from penstock.wire.rest import Refused


def test_a_topic_without_settings_has_the_defaults() -> None:
    assert r.topic_policy(r.body_of(b"", r.TopicChanges)) == (1, TopicPolicy())


def test_settings_of_a_topic_stand_beside_its_partitions() -> None:
    body = b'{"partitions":3,"durability":"written","retain_s":null,"keep_last":2}'
    expected = TopicPolicy(durability=Durability.WRITTEN, retain_s=None, keep_last=2)
    assert r.topic_policy(r.body_of(body, r.TopicChanges)) == (3, expected)


@pytest.mark.parametrize(
    "body",
    [b'{"partitions":0}', b'{"durability":"replicated"}', b'{"dead_of":"x"}', b'{"keep_last":-1}',
     b'{"max_age_s":0}', b'{"retain_s":1e300}', b"[]", b'{"partitions":true}'],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused(body: bytes) -> None:
    with pytest.raises(InvalidArgument):
        r.body_of(body, r.TopicChanges)


def test_a_subscription_is_what_its_body_says() -> None:
    body = r.body_of(
        b'{"kind":"key_shared","qos":2,"lease_s":5,"retry":{"max_attempts":null},"start":"latest"}',
        r.NewSubscription,
    )
    assert body.start == "latest"
    assert r.subscription_policy(body) == SubscriptionPolicy(
        kind=Kind.KEY_SHARED, qos=2, lease_s=5.0, retry=Retry(max_attempts=None)
    )


def test_changes_are_only_what_is_there() -> None:
    body = r.body_of(b'{"retry":{"first_s":2}}', r.SubscriptionChanges)
    assert r.subscription_changes(body) == {"retry": Retry(first_s=2.0)}
    assert r.given(r.body_of(b"{}", r.TopicChanges)) == {}


def test_a_pull_is_told_in_the_body_or_in_the_query() -> None:
    wish = r.Pull(max=5, wait_s=1.5, consumer="c")
    assert r.pull_of(b'{"max":5,"wait_s":1.5,"consumer":"c"}', "") == wish
    assert r.pull_of(b"", "max=5&wait_s=1.5&consumer=c") == wish
    assert r.pull_of(b"", "") == r.Pull()
    with pytest.raises(InvalidArgument, match="not in both"):
        r.pull_of(b'{"max":5}', "max=5")


@pytest.mark.parametrize(
    "query", ["max=0", "max=x", "wait_s=61", "wait_s=nan", "who=me", "consumer="]
)
def test_pulls_that_make_no_sense_are_refused(query: str) -> None:
    with pytest.raises((InvalidArgument, Refused)):
        r.pull_of(b"", query)


def test_tokens_are_at_least_one() -> None:
    with pytest.raises(InvalidArgument, match="tokens"):
        r.body_of(b'{"tokens":[]}', r.Ack)


def test_null_is_not_how_a_query_leaves_something_out() -> None:
    assert r.query_of("after=3", r.Looking).partition is None
    with pytest.raises(InvalidArgument, match="leave out"):
        r.query_of("partition=null", r.Looking)
