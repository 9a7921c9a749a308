"""Calls to Pub/Sub over gRPC, in batches. The only module that imports the SDK.

The calls are the plain ones, publish, pull, acknowledge and modify the deadline, each for many
messages: how many are under way is then our own decision, and so is what is renewed. The SDK's
errors become ours here, and only here.
"""

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from penstock.drivers.foreign.address import Address
from penstock.drivers.foreign.carrier import missing
from penstock.drivers.pubsub.records import Record
from penstock.vocabulary.errors import (
    AccessRefused,
    InvalidArgument,
    PenstockError,
    StorageError,
    Unavailable,
    UnknownSubscription,
    UnknownTopic,
    Unsupported,
)

try:
    import grpc  # type: ignore[import-untyped]
    from google.protobuf.duration_pb2 import Duration  # type: ignore[import-untyped]
    from google.protobuf.empty_pb2 import Empty  # type: ignore[import-untyped]
    from google.protobuf.field_mask_pb2 import FieldMask  # type: ignore[import-untyped]
    from google.protobuf.timestamp_pb2 import Timestamp  # type: ignore[import-untyped]
    from google.pubsub_v1.types import pubsub as types
    from google.rpc.error_details_pb2 import ErrorInfo  # type: ignore[import-untyped]
    from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
except ImportError as error:  # pragma: no cover - the extra is installed where tests run
    raise missing("pubsub", "google-cloud-pubsub") from error

EMULATOR: Final = "PUBSUB_EMULATOR_HOST"
GOOGLE: Final = "pubsub.googleapis.com:443"
SCOPE: Final = "https://www.googleapis.com/auth/pubsub"
CALL_S: Final = 10.0
PAGE: Final = 1_000
IDS_MAX: Final = 1_000
"""Deliveries that one request speaks of: it may have 512 KiB."""
MESSAGE_BYTES_MAX: Final = 64 * 1024 * 1024
DETAILS: Final = "grpc-status-details-bin"
PERMANENT: Final = "PERMANENT_FAILURE"
TRANSIENT: Final = "TRANSIENT_FAILURE"

_CHANNEL: Final = [
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.enable_retries", 0),  # whoever calls knows what may be repeated
    ("grpc.use_local_subchannel_pool", 1),  # a new connection learns at once that a server is back
]
_CODES: Final[Mapping[Any, type[PenstockError]]] = {
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: Unavailable,
    grpc.StatusCode.ABORTED: Unavailable,
    grpc.StatusCode.CANCELLED: Unavailable,
    grpc.StatusCode.INTERNAL: Unavailable,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Unavailable,
    grpc.StatusCode.UNKNOWN: Unavailable,
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgument,
    grpc.StatusCode.UNIMPLEMENTED: Unsupported,
}
_REFUSED: Final = (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED)


def _pb(name: str) -> Any:
    return getattr(types, name).pb()


_METHODS: Final[dict[str, tuple[str, Any, Any]]] = {
    "CreateTopic": ("Publisher", _pb("Topic"), _pb("Topic")),
    "GetTopic": ("Publisher", _pb("GetTopicRequest"), _pb("Topic")),
    "UpdateTopic": ("Publisher", _pb("UpdateTopicRequest"), _pb("Topic")),
    "DeleteTopic": ("Publisher", _pb("DeleteTopicRequest"), Empty),
    "ListTopics": ("Publisher", _pb("ListTopicsRequest"), _pb("ListTopicsResponse")),
    "ListTopicSubscriptions": (
        "Publisher", _pb("ListTopicSubscriptionsRequest"), _pb("ListTopicSubscriptionsResponse"),
    ),
    "Publish": ("Publisher", _pb("PublishRequest"), _pb("PublishResponse")),
    "CreateSubscription": ("Subscriber", _pb("Subscription"), _pb("Subscription")),
    "GetSubscription": ("Subscriber", _pb("GetSubscriptionRequest"), _pb("Subscription")),
    "UpdateSubscription": ("Subscriber", _pb("UpdateSubscriptionRequest"), _pb("Subscription")),
    "DeleteSubscription": ("Subscriber", _pb("DeleteSubscriptionRequest"), Empty),
    "Pull": ("Subscriber", _pb("PullRequest"), _pb("PullResponse")),
    "Acknowledge": ("Subscriber", _pb("AcknowledgeRequest"), Empty),
    "ModifyAckDeadline": ("Subscriber", _pb("ModifyAckDeadlineRequest"), Empty),
    "Seek": ("Subscriber", _pb("SeekRequest"), _pb("SeekResponse")),
}  # fmt: skip
_Message: Final = _pb("PubsubMessage")


class Pulled(NamedTuple):
    """A message that Pub/Sub delivered."""

    ack_id: str
    attempt: int
    """0 when the subscription does not count."""
    message_id: str
    data: bytes
    attributes: dict[str, str]
    ordering_key: str
    published_ns: int


class Service:
    """One connection, shared by a carrier and its feeds."""

    def __init__(self, address: Address) -> None:
        self.project = address.hosts[0][0]
        emulator = address.options.get("emulator") or os.environ.get(EMULATOR)
        self.is_emulator = bool(emulator)
        self._where = f"{address.text} ({emulator or GOOGLE})"
        self._channel = self._open(emulator)
        self._calls = {
            name: self._channel.unary_unary(
                f"/google.pubsub.v1.{service}/{name}",
                request_serializer=asked.SerializeToString,
                response_deserializer=answered.FromString,
            )
            for name, (service, asked, answered) in _METHODS.items()
        }

    def _open(self, emulator: str | None) -> Any:
        if emulator:
            return grpc.aio.insecure_channel(emulator, options=_CHANNEL)
        # An emulator has no use for these, which take long to load.
        import google.auth  # noqa: PLC0415
        from google.auth import exceptions as auth_problems  # noqa: PLC0415
        from google.auth.transport.grpc import AuthMetadataPlugin  # noqa: PLC0415
        from google.auth.transport.requests import Request as AuthRequest  # noqa: PLC0415

        try:
            credentials, _ = google.auth.default(scopes=[SCOPE])
        except auth_problems.GoogleAuthError as error:
            raise AccessRefused(
                f"{self._where}: no credentials were found ({type(error).__name__}): set "
                "GOOGLE_APPLICATION_CREDENTIALS, run 'gcloud auth application-default login', or "
                f"name an emulator by {EMULATOR} or the option emulator="
            ) from None
        plugin = AuthMetadataPlugin(credentials, AuthRequest())  # type: ignore[no-untyped-call]
        both = grpc.composite_channel_credentials(
            grpc.ssl_channel_credentials(), grpc.metadata_call_credentials(plugin)
        )
        return grpc.aio.secure_channel(GOOGLE, both, options=_CHANNEL)

    async def close(self) -> None:
        """Ends the connection."""
        await self._channel.close()

    async def call(self, name: str, /, timeout_s: float = CALL_S, **fields: Any) -> Any:
        """Asks Pub/Sub; the answer is its own message. Raises PenstockError."""
        request = _METHODS[name][1](**fields)
        try:
            return await self._calls[name](request, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            raise self._translated(name, error) from error
        except grpc.aio.UsageError as error:  # the channel is closed
            raise Unavailable(f"{self._where}: {error}") from error

    def _translated(self, name: str, error: Any) -> PenstockError:
        code, said = error.code(), error.details() or ""
        if "from plugin failed" in said:
            return Unavailable(f"{self._where}: the credentials could not be renewed just now")
        if code in _REFUSED:
            return AccessRefused(
                f"{self._where} refused {name} to the credentials in use ({code.name}): give "
                "their account the role roles/pubsub.editor, or use another account"
            )
        if code is grpc.StatusCode.NOT_FOUND:
            if _METHODS[name][0] == "Publisher" or name == "CreateSubscription":
                return UnknownTopic(f"{self._where}: {name}: {said}")
            return UnknownSubscription(
                f"{self._where}: {name}: {said}: the subscription was deleted or expired, or an "
                "emulator was restarted and forgot it; subscribe again"
            )
        kind_of = _CODES.get(code, StorageError)
        return kind_of(
            f"{self._where}: {name}: {said or code.name}", code=code.name, failed=_failed(error)
        )

    # -- messages --------------------------------------------------------------------------------

    async def publish(self, topic: str, records: Sequence[Record]) -> list[str]:
        """Stores messages of one ordering key; their ids."""
        messages = [
            _Message(data=data, attributes=attributes, ordering_key=key)
            for data, attributes, key, _ in records
        ]
        answer = await self.call("Publish", topic=self.topic(topic), messages=messages)
        return list(answer.message_ids)

    async def pull(
        self, subscription: str, count: int, timeout_s: float, *, is_waiting: bool
    ) -> list[Pulled]:
        """Up to so many messages; waiting, none when the time is over."""
        try:
            answer = await self.call(
                "Pull", timeout_s, subscription=subscription, max_messages=min(count, PAGE),
                return_immediately=not is_waiting,
            )  # fmt: skip
        except Unavailable as error:
            if is_waiting and error.details.get("code") == "DEADLINE_EXCEEDED":
                return []
            raise
        return [_pulled(each) for each in answer.received_messages]

    async def acknowledge(self, subscription: str, ids: Sequence[str]) -> dict[str, str]:
        """Finishes deliveries; what failed, with its reason, where the subscription says so."""
        return await self._speak("Acknowledge", subscription, ids)

    async def set_deadline(
        self, subscription: str, ids: Sequence[str], seconds: int
    ) -> dict[str, str]:
        """Deliveries end so many seconds from now; 0 gives them back at once."""
        return await self._speak(
            "ModifyAckDeadline", subscription, ids, ack_deadline_seconds=seconds
        )

    async def _speak(
        self, name: str, subscription: str, ids: Sequence[str], **fields: Any
    ) -> dict[str, str]:
        parts = [ids[low : low + IDS_MAX] for low in range(0, len(ids), IDS_MAX)]
        told = await asyncio.gather(
            *(self._speak_of(name, subscription, part, **fields) for part in parts)
        )
        return {id: why for each in told for id, why in each.items()}

    async def _speak_of(
        self, name: str, subscription: str, ids: Sequence[str], **fields: Any
    ) -> dict[str, str]:
        try:
            await self.call(name, subscription=subscription, ack_ids=ids, **fields)
        except PenstockError as error:
            failed: dict[str, str] = error.details.get("failed") or {}
            if not failed:
                raise
            return failed
        return {}

    # -- names -----------------------------------------------------------------------------------

    def topic(self, id: str) -> str:
        """The full name of a topic."""
        return f"projects/{self.project}/topics/{id}"

    def subscription(self, id: str) -> str:
        """The full name of a subscription."""
        return f"projects/{self.project}/subscriptions/{id}"

    async def topics(self) -> list[Any]:
        """Every topic of the project."""
        found: list[Any] = []
        token = ""
        while True:
            answer = await self.call(
                "ListTopics", project=f"projects/{self.project}", page_size=PAGE, page_token=token
            )
            found += answer.topics
            token = answer.next_page_token
            if not token:
                return found

    async def subscriptions_of(self, topic: str) -> list[str]:
        """The full names of a topic's subscriptions."""
        found: list[str] = []
        token = ""
        while True:
            answer = await self.call(
                "ListTopicSubscriptions", topic=self.topic(topic), page_size=PAGE, page_token=token
            )
            found += answer.subscriptions
            token = answer.next_page_token
            if not token:
                return found


def seconds(count: float) -> Any:
    """A length of time as Pub/Sub wants it."""
    return Duration(seconds=int(count))


def moment(unix_s: float) -> Any:
    """A point in time as Pub/Sub wants it."""
    whole = int(unix_s)
    return Timestamp(seconds=whole, nanos=int((unix_s - whole) * 1e9))


def mask(*paths: str) -> Any:
    """Which fields an update changes."""
    return FieldMask(paths=paths)


def _pulled(received: Any) -> Pulled:
    message = received.message
    at = message.publish_time
    return Pulled(
        received.ack_id, received.delivery_attempt, message.message_id, message.data,
        dict(message.attributes), message.ordering_key, at.seconds * 1_000_000_000 + at.nanos,
    )  # fmt: skip


def _failed(error: Any) -> dict[str, str]:
    """Delivery → why it failed, as a subscription with exactly-once tells."""
    found: dict[str, str] = {}
    for name, value in error.trailing_metadata() or ():
        if name == DETAILS:
            for detail in Status.FromString(value).details:
                info = ErrorInfo()
                if detail.Unpack(info):
                    found |= {
                        id: why
                        for id, why in info.metadata.items()
                        if why.startswith((PERMANENT, TRANSIENT))
                    }
    return found
