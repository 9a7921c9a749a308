"""What the bodies of requests say: one type for each, from which the OpenAPI document is made."""

from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from penstock.vocabulary import limits
from penstock.vocabulary.errors import InvalidArgument
from penstock.vocabulary.message import Kind
from penstock.vocabulary.policy import OnDuplicate, Retry, SubscriptionPolicy, TopicPolicy
from penstock.wire import cloudevents
from penstock.wire.rest_json import convert, read
from penstock.wire.rest_path import parse_query
from penstock.wire.rest_words import in_words

T = TypeVar("T")

PULL_MAX: int = 1_000
WAIT_S_MAX: float = 60.0
TOKENS_MAX: int = 10_000
LEASE_S_MAX: float = 86_400.0

Form = Literal["json", "cloudevents-batch", "cloudevents", "cloudevents-binary"]
"""What a pull is answered with: cloudevents is structured mode."""
SINGLE: frozenset[str | None] = frozenset({"cloudevents", "cloudevents-binary"})

Time = Annotated[float, Meta(ge=0, le=1e11)]
Tokens = Annotated[
    list[str],
    Meta(min_length=1, max_length=TOKENS_MAX, description="Ack tokens, as a pull gave them."),
]


class _Body(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Fields that are not known are refused."""


class TopicChanges(_Body):
    """Settings of a topic; what is left out keeps its default, or its value."""

    partitions: Annotated[int, Meta(ge=1, le=limits.PARTITIONS_MAX)] | UnsetType = UNSET
    durability: (
        Annotated[str, Meta(pattern="^(synced|written)$", description="When a publish counts.")]
        | UnsetType
    ) = UNSET
    retain_s: (
        Annotated[float, Meta(ge=0, le=1e12, description="Without a subscription.")]
        | UnsetType
        | None
    ) = UNSET
    on_duplicate: OnDuplicate | UnsetType = UNSET
    replay_s: Annotated[float, Meta(ge=0, le=1e12)] | UnsetType = UNSET
    keep_last: Annotated[int, Meta(ge=0, le=limits.KEEP_LAST_MAX)] | UnsetType = UNSET
    max_age_s: Annotated[float, Meta(gt=0, le=1e12)] | UnsetType | None = UNSET
    max_bytes: Annotated[int, Meta(ge=1, le=2**62)] | UnsetType | None = UNSET


class RetryFields(_Body):
    """When a failed message comes back: first_s × 2ⁿ up to max_s."""

    first_s: Annotated[float, Meta(ge=0, le=limits.DELAY_S_MAX)] = limits.BACKOFF_FIRST_S
    max_s: Annotated[float, Meta(ge=0, le=limits.DELAY_S_MAX)] = limits.BACKOFF_MAX_S
    max_attempts: Annotated[int, Meta(ge=1, le=2**31)] | None = limits.MAX_ATTEMPTS_DEFAULT


class SubscriptionChanges(_Body):
    """Settings of a subscription that may change; what is left out keeps its value."""

    lease_s: Annotated[float, Meta(ge=0.01, le=LEASE_S_MAX)] | UnsetType = UNSET
    retry: RetryFields | UnsetType = UNSET
    dead_bytes_max: Annotated[int, Meta(ge=0, le=2**62)] | UnsetType = UNSET


class NewSubscription(SubscriptionChanges):
    """A subscription: kind, QoS, where it starts, and its settings."""

    kind: Kind = Kind.SHARED
    qos: Annotated[int, Meta(ge=0, le=2)] = 1
    start: Annotated[
        str | float | None,
        Meta(description="earliest, latest, Unix seconds, or a position like 0:17."),
    ] = None


class Pull(_Body):
    """How many messages to hand over, how long to wait for the first, and who asks."""

    max: Annotated[int, Meta(ge=1, le=PULL_MAX)] = 100
    wait_s: Annotated[float, Meta(ge=0, le=WAIT_S_MAX)] = 0.0
    consumer: Annotated[str, Meta(min_length=1, max_length=limits.CONSUMER_BYTES_MAX)] | None = None
    format: (
        Annotated[
            Form,
            Meta(
                description="Without it Accept decides; cloudevents and cloudevents-binary are one "
                "event, so max must be 1."
            ),
        ]
        | None
    ) = None

    def form(self, accept: str) -> Form:
        """What the answer is, as the pull or its Accept header says. Raises InvalidArgument."""
        if self.format in SINGLE and self.max != 1:
            raise InvalidArgument(f"format {self.format} is one event: say max=1 with it")
        if self.format is not None:
            return self.format
        if cloudevents.STRUCTURED in accept and self.max == 1:
            return "cloudevents"
        is_batch = cloudevents.BATCH in accept or cloudevents.STRUCTURED in accept
        return "cloudevents-batch" if is_batch else "json"


class Ack(_Body):
    """Which deliveries are done."""

    tokens: Tokens


class Nack(_Body):
    """Which deliveries failed, when they come again (None = the usual back-off), and why."""

    tokens: Tokens
    delay_s: Annotated[float, Meta(ge=0, le=limits.DELAY_S_MAX)] | None = None
    reason: str = ""


class Reject(_Body):
    """Which deliveries go straight to the dead letters, and why."""

    tokens: Tokens
    reason: str = ""


class Extend(_Body):
    """Which deliveries need so many seconds from now on."""

    tokens: Tokens
    seconds: Annotated[float, Meta(gt=0, le=LEASE_S_MAX)]


class Redrive(_Body):
    """Which dead letters go back to their subscription; every given condition must hold."""

    id: str | None = None
    reason_contains: str | None = None
    limit: Annotated[int, Meta(ge=1, le=2**53)] | None = None
    dry_run: bool = False


class SeekTo(_Body):
    """Where a subscription goes on: earliest, latest, Unix seconds, or a position like 0:17."""

    to: str | Time


class Looking(_Body):
    """Which messages to show."""

    limit: Annotated[int, Meta(ge=1, le=PULL_MAX)] = 100
    partition: Annotated[int, Meta(ge=0, le=limits.PARTITIONS_MAX - 1)] | None = None
    after: Annotated[int, Meta(ge=0, le=2**62)] = 0


class Log(_Body):
    """How many messages of each subscription to show."""

    limit: Annotated[int, Meta(ge=1, le=limits.TOPIC_LOG_MAX)] = 100


class Question(_Body):
    """Which message, key or consumer does not move."""

    position: str | None = None
    id: str | None = None
    key: str | None = None
    consumer: str | None = None


def body_of(data: bytes, kind: type[T]) -> T:
    """The body of a request as this type. Raises InvalidArgument."""
    return read(data, kind)


def query_of(query: str, kind: type[T]) -> T:
    """The query of a request as this type. Raises InvalidArgument, Refused."""
    fields = parse_query(query)
    try:
        found = msgspec.convert(fields, kind, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidArgument(f"the query does not fit: {in_words(error, kind)}") from error
    for name, text in fields.items():
        if getattr(found, name) is None:
            raise InvalidArgument(
                f"the query does not fit: {name} is {text!r}; leave out what is not meant"
            )
    return found


def pull_of(data: bytes, query: str) -> Pull:
    """A pull, which may be told in the body or in the query. Raises InvalidArgument, Refused."""
    if not query:
        return read(data, Pull)
    asked = query_of(query, Pull)
    if data.strip():
        raise InvalidArgument("tell a pull in the body or in the query, not in both")
    return asked


def given(body: msgspec.Struct) -> dict[str, Any]:
    """The fields of a body that are there."""
    found = {name: getattr(body, name) for name in body.__struct_fields__}
    return {name: value for name, value in found.items() if value is not UNSET}


def topic_policy(body: TopicChanges) -> tuple[int, TopicPolicy]:
    """Partitions and policy of a new topic. Raises InvalidArgument."""
    fields = given(body)
    partitions = fields.pop("partitions", 1)
    return partitions, convert(fields, TopicPolicy, "the topic")


def subscription_policy(body: NewSubscription) -> SubscriptionPolicy:
    """The policy of a new subscription. Raises InvalidArgument."""
    fields = given(body)
    fields.pop("start")
    if "retry" in fields:
        fields["retry"] = retry_of(fields["retry"])
    return SubscriptionPolicy(**fields)


def subscription_changes(body: SubscriptionChanges) -> dict[str, Any]:
    """What changes in the policy of a subscription."""
    fields = given(body)
    if "retry" in fields:
        fields["retry"] = retry_of(fields["retry"])
    return fields


def retry_of(fields: RetryFields) -> Retry:
    """The retry policy these fields mean."""
    return Retry(first_s=fields.first_s, max_s=fields.max_s, max_attempts=fields.max_attempts)
