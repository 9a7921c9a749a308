"""The catalogue of everything that can go wrong, each with a stable code.

PenstockError
├── UsageError            the caller can fix it: bad argument, unknown name, conflict
├── ProtocolError         bytes that do not say what they must
├── Unavailable           try again later (retryable)
├── StorageError          the store on disk refuses or failed
└── Unsupported           this URL cannot give what was asked

Texts say what happened, where, and what to do next. All errors pickle.
"""

from typing import Any, ClassVar


class PenstockError(Exception):
    """Root of every error this library raises on purpose."""

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False
    closes_connection: ClassVar[bool] = False

    def __init__(self, text: str = "", **details: Any) -> None:
        super().__init__(text)
        self.text = text
        self.details = details

    def __str__(self) -> str:
        return self.text

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.text, self.details))


def _rebuild(kind: type[PenstockError], text: str, details: dict[str, Any]) -> PenstockError:
    return kind(text, **details)


# -- the caller can fix it ------------------------------------------------------------------


class UsageError(PenstockError):
    """The call itself is wrong; repeating it unchanged cannot succeed."""

    code = "usage"


class InvalidArgument(UsageError):
    """A parameter has a value outside its documented range."""

    code = "invalid-argument"


class InvalidConfiguration(UsageError):
    """A configuration file, environment variable or option has an unknown name or a wrong value."""

    code = "invalid-configuration"

    @property
    def problems(self) -> list[str]:
        """Everything that is wrong, one sentence each."""
        return list(self.details.get("problems", [self.text]))


class InvalidName(UsageError):
    """A topic, subscription or consumer name breaks the naming rules."""

    code = "invalid-name"


class TooLarge(UsageError):
    """A body, key, id, header or batch is over its limit."""

    code = "too-large"


class UnitTooLarge(TooLarge):
    """The publishes and acks of one transaction are over the limit for a unit."""

    code = "unit-too-large"


class UnknownTopic(UsageError):
    """The topic does not exist and may not be created by this call."""

    code = "unknown-topic"


class UnknownSubscription(UsageError):
    """The topic has no subscription of this name."""

    code = "unknown-subscription"


class TopicExists(UsageError):
    """The topic exists already with other settings."""

    code = "topic-exists"


class TopicInUse(UsageError):
    """The topic cannot be deleted while something still depends on it."""

    code = "topic-in-use"


class PartitionsOnlyGrow(UsageError):
    """A topic may get more partitions, never fewer."""

    code = "partitions-only-grow"


class SubscriptionConflict(UsageError):
    """The subscription exists already with another kind or policy."""

    code = "subscription-conflict"


class SubscriptionInUse(UsageError):
    """The subscription has connected consumers."""

    code = "subscription-in-use"


class PositionNotHeld(UsageError):
    """The asked start lies below what the topic still holds."""

    code = "position-not-held"


class ReaderFenced(UsageError):
    """A newer owner has opened this reader; this one may not use it any more."""

    code = "reader-fenced"


class NotPlanned(UsageError):
    """A reader may move its progress only forward, and only inside its planned range."""

    code = "not-planned"


class AlreadySettled(UsageError):
    """This message object was already acked, nacked or rejected."""

    code = "already-settled"


class NotLeased(UsageError):
    """The message is not leased to this consumer, or was handed out again since."""

    code = "not-leased"


class AckRefused(UsageError):
    """The broker did not accept some acks; `.refused` lists (topic, partition, offset, why)."""

    code = "ack-refused"

    @property
    def refused(self) -> list[tuple[str, int, int, str]]:
        """What was not accepted."""
        return list(self.details.get("refused", []))


class PublishFailed(PenstockError):
    """Part of `publish_many` did not succeed; indexes tell which part is safe."""

    code = "publish-failed"

    @property
    def confirmed(self) -> list[int]:
        """Indexes of messages that are durable."""
        return list(self.details.get("confirmed", []))

    @property
    def refused(self) -> list[int]:
        """Indexes of messages that were certainly not stored."""
        return list(self.details.get("refused", []))

    @property
    def unknown(self) -> list[int]:
        """Indexes of messages whose fate is not known; a retry may repeat them."""
        return list(self.details.get("unknown", []))


class BodyDoesNotFit(UsageError):
    """A received body cannot be decoded into the asked type; the text names the wrong field."""

    code = "body-does-not-fit"


class Closed(UsageError):
    """The client, broker or subscription was closed."""

    code = "closed"


class PublisherFenced(UsageError):
    """A newer epoch of this publisher exists; this one may not publish any more."""

    code = "publisher-fenced"


class PublisherForgotten(UsageError):
    """The publisher was idle for too long to tell a retry from a new message."""

    code = "publisher-forgotten"


class AccessRefused(UsageError):
    """The broker refused the credentials, or the rights of this user."""

    code = "access-refused"


class AddressInUse(UsageError):
    """A server cannot listen there: somebody else does, or it may not."""

    code = "address-in-use"


# -- bytes --------------------------------------------------------------------------------------


class ProtocolError(PenstockError):
    """Bytes that do not follow their format."""

    code = "protocol"
    closes_connection = True


class MalformedBatch(ProtocolError):
    """A batch whose columns, counts or checksum do not agree."""

    code = "malformed-batch"


# -- try again later ---------------------------------------------------------------------------


class Unavailable(PenstockError):
    """Nothing is wrong with the call; try again later."""

    code = "unavailable"
    retryable = True


class Draining(Unavailable):
    """The broker is stopping and takes no new work."""

    code = "draining"


class Unconfirmed(Unavailable):
    """The broker did not answer in time: the messages may or may not be stored."""

    code = "unconfirmed"


class DiskFull(Unavailable):
    """Free space is below the reserve: publishes are refused, acks and reads go on."""

    code = "disk-full"


class DeadLetterFull(Unavailable):
    """The dead-letter topic is at its size cap; the source message waits."""

    code = "dead-letter-full"


class HeldByReader(Unavailable):
    """The topic is at its `max_bytes`, and only what a reader has planned could be removed."""

    code = "held-by-reader"


class StaleMap(Unavailable):
    """The topic got more partitions since this batch was split; it was certainly not stored."""

    code = "stale-map"

    @property
    def partitions(self) -> int:
        """How many partitions the topic has now."""
        return int(self.details.get("partitions", 0))

    @property
    def topic(self) -> str:
        """The topic that grew; empty where only one can be meant."""
        return str(self.details.get("topic", ""))


# -- the store ---------------------------------------------------------------------------------


class StorageError(PenstockError):
    """The store refuses or failed."""

    code = "storage"


class NotAStore(StorageError):
    """The folder holds other files and no Penstock store."""

    code = "not-a-store"


class StoreInUse(StorageError):
    """Another process has the store open."""

    code = "store-in-use"


class StoreTooNew(StorageError):
    """The store was written by a newer version of Penstock."""

    code = "store-too-new"


class StoreDamaged(StorageError):
    """The store cannot be opened safely; the text names the salvage command."""

    code = "store-damaged"


class StoreFailed(StorageError):
    """A write or sync failed; the store takes no writes until it is opened again."""

    code = "store-failed"


class RecordDamaged(StorageError):
    """These messages were lost to damage on disk."""

    code = "record-damaged"


class BackupDamaged(StorageError):
    """A backup is not whole, was changed since, or is none."""

    code = "backup-damaged"


# -- capabilities ------------------------------------------------------------------------------


class Unsupported(PenstockError):
    """This URL, driver or version cannot do what was asked."""

    code = "unsupported"


def catalogue() -> dict[str, type[PenstockError]]:
    """Every stable code and its class."""
    found: dict[str, type[PenstockError]] = {}
    queue: list[type[PenstockError]] = [PenstockError]
    while queue:
        kind = queue.pop()
        assert kind.code not in found, f"two errors share the code {kind.code}"
        found[kind.code] = kind
        queue.extend(kind.__subclasses__())
    return found
