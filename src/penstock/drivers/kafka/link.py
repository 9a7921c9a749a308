"""Kafka's client library, behind what this driver needs of it. Its errors become ours here.

The library works in threads of its own and calls back in the thread that polls. One thread polls
for the deliveries of a client's producer and tells the loop once for each call of `produce`.
"""

import asyncio
import logging
import re
import threading
import warnings
from asyncio import AbstractEventLoop, Future
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, Final

from penstock.drivers.foreign.carrier import missing
from penstock.drivers.kafka.records import Record
from penstock.drivers.kafka.settings import Settings, client_id, producer_config
from penstock.drivers.reasons import UNKNOWN_HOST
from penstock.vocabulary.errors import (
    AccessRefused,
    InvalidName,
    PenstockError,
    StorageError,
    TooLarge,
    TopicExists,
    Unavailable,
    Unconfirmed,
    UnknownTopic,
    Unsupported,
)

try:
    from confluent_kafka import (
        OFFSET_BEGINNING,
        OFFSET_END,
        Consumer,
        IsolationLevel,
        KafkaError,
        KafkaException,
        Producer,
        TopicCollection,
        TopicPartition,
    )
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
    from confluent_kafka.admin._listoffsets import OffsetSpec
    from confluent_kafka.cimpl import NewPartitions, NewTopic
except ImportError as error:  # pragma: no cover - the extra is installed where tests run
    raise missing("kafka", "confluent-kafka") from error

__all__ = [
    "OFFSET_BEGINNING", "OFFSET_END", "AdminClient", "AlterConfigOpType", "ConfigEntry",
    "ConfigResource", "Consumer", "IsolationLevel", "KafkaError",
    "KafkaException", "Link", "NewPartitions", "NewTopic", "OffsetSpec", "Producer",
    "TopicCollection", "TopicPartition", "translated",
]  # fmt: skip

log = logging.getLogger("penstock.drivers")
sdk_log = logging.getLogger("penstock.drivers.kafka.sdk")
"""What the library itself has to say. It repeats each failed connection, as an error; whoever asked
is told by us, once, and the library's own words are information."""

POLL_S: Final = 0.2
TELL_S: Final = 60.0
"""While no broker can be reached, the log says so this often."""
ASK_S: Final = 10.0
COORDINATOR_S: Final = 5.0
COORDINATOR_S_MAX: Final = 45.0
COORDINATOR_PAUSE_S: Final = 0.2
WORKERS: Final = 8
BATCH_SLACK: Final = 1_024
_PENSTOCK: Final = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: UnknownTopic,
    KafkaError._UNKNOWN_TOPIC: UnknownTopic,  # noqa: SLF001 - the library's own name
    KafkaError._UNKNOWN_PARTITION: UnknownTopic,  # noqa: SLF001
    KafkaError.TOPIC_ALREADY_EXISTS: TopicExists,
    KafkaError.MSG_SIZE_TOO_LARGE: TooLarge,
    KafkaError.RECORD_LIST_TOO_LARGE: TooLarge,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: AccessRefused,
    KafkaError.GROUP_AUTHORIZATION_FAILED: AccessRefused,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: AccessRefused,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: AccessRefused,
    KafkaError.SASL_AUTHENTICATION_FAILED: AccessRefused,
    KafkaError._AUTHENTICATION: AccessRefused,  # noqa: SLF001
    KafkaError.POLICY_VIOLATION: Unsupported,
    KafkaError.INVALID_REPLICATION_FACTOR: Unsupported,
    KafkaError.TOPIC_EXCEPTION: InvalidName,
    KafkaError.KAFKA_STORAGE_ERROR: StorageError,
}
_AWAY: Final = {
    getattr(KafkaError, name)
    for name in (
        "_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_RESOLVE", "_WAIT_COORD", "_STATE",
        "_TIMED_OUT_QUEUE", "_RETRY", "_MSG_TIMED_OUT", "_PURGE_QUEUE", "_DESTROY",
        "LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION", "REQUEST_TIMED_OUT",
        "BROKER_NOT_AVAILABLE", "REPLICA_NOT_AVAILABLE", "NETWORK_EXCEPTION",
        "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR",
        "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "NOT_CONTROLLER",
        "CONCURRENT_TRANSACTIONS", "UNSTABLE_OFFSET_COMMIT", "REBALANCE_IN_PROGRESS",
        "UNKNOWN_LEADER_EPOCH", "FENCED_LEADER_EPOCH",
    )
    if hasattr(KafkaError, name)
}  # fmt: skip
NOBODY: Final = "no broker answered"
_REASON: Final = re.compile(r"failed: ([^(]+?) \(")
"""Of `…: Connect to ipv4#127.0.0.1:9 failed: Connection refused (after 0ms in state CONNECT)`."""
_ABOUT_CONNECTIONS: Final = ("FAIL [", "ERROR [", "GETPID [")
_UNANSWERED: Final = {
    KafkaError._TIMED_OUT,  # noqa: SLF001
    KafkaError._PARTIAL,  # noqa: SLF001 - by some brokers
}
_COORDINATOR_AWAY: Final = {
    *_UNANSWERED,
    KafkaError._TRANSPORT,  # noqa: SLF001 - a node that went, until the others miss it
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}
STALE: Final = frozenset(
    getattr(KafkaError, name)
    for name in ("ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID",
                 "_MAX_POLL_EXCEEDED", "_ASSIGNMENT_LOST", "STALE_MEMBER_EPOCH", "_NO_OFFSET")
    if hasattr(KafkaError, name)
)  # fmt: skip
"""The group went on without this consumer."""


def _why_away(error: Any) -> str:
    """Why no broker can be reached, from what the library tells of its attempts."""
    if error.code() == KafkaError._RESOLVE:  # noqa: SLF001
        return UNKNOWN_HOST
    said = _REASON.search(error.str())
    return said[1].lower() if said else ""


def code_of(error: BaseException) -> int | None:
    """The number of an error of the library."""
    if isinstance(error, KafkaException) and error.args:
        found = error.args[0]
        return found.code() if isinstance(found, KafkaError) else None
    return None


def translated(error: Any, where: str) -> PenstockError:
    """An error of the library in our words."""
    inner = error.args[0] if isinstance(error, KafkaException) and error.args else error
    if not isinstance(inner, KafkaError):
        return StorageError(f"{where}: {error}")
    text = f"{where}: {inner.str()} ({inner.name()})"
    kind = _PENSTOCK.get(inner.code())
    if kind is AccessRefused:
        return AccessRefused(f"{where} refused user and password, or the rights of this user: "
                             f"{inner.name()}")  # fmt: skip
    if kind is InvalidName:
        return InvalidName(f"{where}: Kafka takes nothing for a topic of this name: it keeps the "
                           f"topic for itself, or forbids the name ({inner.name()})")  # fmt: skip
    if kind is not None:
        return kind(text)
    if inner.code() in _AWAY or inner.retriable():
        return Unavailable(text)
    return StorageError(text)


class Sending:
    """Records on their way: counts their reports, and tells the loop once at the last one.

    Reports are counted by the thread that polls alone, and how many are wanted by the loop alone.
    """

    def __init__(
        self, count: int, loop: AbstractEventLoop, told: Callable[[], None] | None = None
    ) -> None:
        self.places: list[tuple[int, int]] = [(-1, -1)] * count
        """Partition and offset of each record."""
        self.errors: dict[int, Any] = {}
        self._heard = 0
        self._wanted = count
        self._loop = loop
        self._told = told

    def report(self, at: int, error: Any, message: Any) -> None:
        """In the thread that polls: one record is stored, or never will be."""
        if error is None:
            self.places[at] = (message.partition(), message.offset())
        else:
            self.errors[at] = error
        self._heard += 1
        if self._heard == self._wanted and self._told is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._finish)

    def give_up(self, at: int, error: Any) -> None:
        """On the loop: records from this one on were not taken."""
        for each in range(at, len(self.places)):
            self.errors[each] = error
        self._wanted = at
        self._loop.call_soon(self._finish)

    def _finish(self) -> None:
        if self._told is not None and self._heard >= self._wanted:
            told, self._told = self._told, None
            told()


class _Quieter(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        if record.getMessage().startswith(_ABOUT_CONNECTIONS):
            record.levelno, record.levelname = logging.INFO, "INFO"
        return sdk_log.isEnabledFor(record.levelno)


sdk_log.addFilter(_Quieter())


class Link:
    """The handles of one client: a producer, an administrator, threads."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.where = settings.text
        self.loop = asyncio.get_running_loop()
        self.pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="penstock-kafka")
        self._refusal: AccessRefused | None = None
        self.is_open = False
        """Whether the cluster has answered once."""
        self._why_away = ""
        """What the library said last of a cluster that has not answered yet."""
        self._tells_at = 0.0
        self.handshake = ""
        """Why the newest attempt to speak TLS failed."""
        self._producer: Any = None
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._bytes_max = 1 << 20
        self.admin: Any = self._administrator()
        self._group_admin: Any = self.admin

    def _administrator(self) -> Any:
        given = self.settings.common | {"client.id": client_id("admin")}
        return AdminClient(self.config(given), logger=sdk_log)

    def config(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Settings of a handle, with our ear for errors."""
        return {**given, "error_cb": self._heard}

    def _heard(self, error: Any) -> None:
        if error.code() in {KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED}:  # noqa: SLF001
            self._refusal = translated(error, self.where)  # type: ignore[assignment]
        elif error.code() == KafkaError._SSL:  # noqa: SLF001
            self.handshake = error.str()
        elif error.code() == KafkaError._ALL_BROKERS_DOWN and self.is_open:  # noqa: SLF001
            now = self.loop.time()
            if now >= self._tells_at:
                self._tells_at = now + TELL_S
                log.warning("%s: no broker can be reached; trying on", self.where)
        else:
            if not self.is_open and error.code() in _AWAY:
                self._why_away = _why_away(error) or self._why_away
            log.debug("%s: %s", self.where, error)

    async def close(self) -> None:
        """Ends every thread; what is on its way is given up."""
        if self._is_closed:
            return
        self._is_closed = True
        await self.loop.run_in_executor(None, self._end)

    def _end(self) -> None:
        if self._thread is not None:
            self._thread.join()
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
            producer.flush(1.0)
            with suppress(Exception):
                producer.close()
        self.admin = self._group_admin = None
        self.pool.shutdown(wait=True)

    # -- asking ----------------------------------------------------------------------------------

    async def ask(self, future: Any) -> Any:
        """The answer of an administrator's future, in our words."""
        try:
            return await asyncio.wrap_future(future)
        except KafkaException as error:
            found = self._refusal or translated(error, self.where)
            if isinstance(found, Unavailable) and not self.is_open:
                found = Unavailable(f"{self.where}: {self._why_away or NOBODY}")
            raise found from error

    async def group(self, name: str) -> Any:
        """A group with its members; None when there is none.

        Every broker is asked. The library's administrator would ask the group's coordinator, and
        ends the whole process when the connection to that one breaks (librdkafka issue 4605).
        """
        # The library warns of its older question in favour of the one that may end the process.
        warnings.filterwarnings("ignore", r"list_groups\(\) is deprecated", DeprecationWarning)

        async def once(admin: Any) -> Any:
            call = partial(admin.list_groups, name, timeout=COORDINATOR_S)
            found = await self.loop.run_in_executor(self.pool, call)
            for each in found:
                if each.error is not None and each.error.code() in _COORDINATOR_AWAY:
                    raise KafkaException(each.error)
            return next((each for each in found if each.id == name), None)

        return await self._ask_again(once)

    async def groups(self) -> list[Any]:
        """Every group there is. A list without those of a coordinator that is away is no answer."""

        async def once(admin: Any) -> list[Any]:
            asked = admin.list_consumer_groups(request_timeout=COORDINATOR_S)
            told = await asyncio.wrap_future(asked)
            for error in told.errors:
                raise error if isinstance(error, KafkaException) else KafkaException(error)
            return told.valid  # type: ignore[no-any-return]

        return await self._ask_again(once)  # type: ignore[no-any-return]

    async def _ask_again(self, once: Callable[[Any], Awaitable[Any]]) -> Any:
        """Asks until a coordinator answers.

        An administrator waits for ever for a coordinator whose node was started again, or that it
        had not heard of, and a new one finds it: one that got no answer is not asked again.
        """
        until = self.loop.time() + COORDINATOR_S_MAX
        while True:
            admin = self._group_admin
            try:
                return await once(admin)
            except KafkaException as error:
                code = error.args[0].code()
                is_late = self._is_closed or self.loop.time() > until
                if self._refusal or code not in _COORDINATOR_AWAY or is_late:
                    raise self._refusal or translated(error, self.where) from error
                if code in _UNANSWERED and self._group_admin is admin:
                    self._group_admin = self._administrator()
                await asyncio.sleep(COORDINATOR_PAUSE_S)

    async def run(self, call: Callable[..., Any], *args: Any) -> Any:
        """A call of the library that blocks, in a thread."""
        try:
            return await self.loop.run_in_executor(self.pool, partial(call, *args))
        except KafkaException as error:
            raise self._refusal or translated(error, self.where) from error
        except RuntimeError as error:  # a handle that was closed meanwhile
            raise Unavailable(f"{self.where}: {error}") from error

    # -- producing -------------------------------------------------------------------------------

    def start_producer(self, bytes_max: int) -> None:
        """A new producer: the first, or one in place of one that failed for good."""
        self._bytes_max = bytes_max + BATCH_SLACK
        config = self.config(producer_config(self.settings, self._bytes_max))
        self._producer = Producer(config, logger=sdk_log)
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._poll, name="penstock-kafka-deliveries", daemon=True
            )
            self._thread.start()

    def _poll(self) -> None:
        while not self._is_closed:
            self._producer.poll(POLL_S)

    async def refresh(self, topic: str) -> None:
        """Has the producer see a topic's new partitions at once."""
        await self.run(lambda: self._producer.list_topics(topic, timeout=ASK_S))

    async def produce(self, topic: str, records: Sequence[Record]) -> list[tuple[int, int]]:
        """Stores records in their order; partition and offset of each.

        Raises Unconfirmed when some may be stored and others not; any other error: none is.
        """
        done: Future[Any] = self.loop.create_future()
        self.post(topic, records, partial(_set_if_waited, done))
        outcome = await done
        if isinstance(outcome, PenstockError):
            raise outcome
        return list(outcome)

    def post(
        self, topic: str, records: Sequence[Record],
        told: Callable[[list[tuple[int, int]] | PenstockError], None],
    ) -> None:  # fmt: skip
        """Begins to store records; their outcome, as of `produce`, is told on the loop, later."""

        def finish() -> None:
            told(self._failure(topic, sending) if sending.errors else sending.places)

        sending = Sending(len(records), self.loop, finish)
        produce = self._producer.produce
        reports = [partial(sending.report, at) for at in range(len(records))]
        at = 0
        try:
            # Quickly: the library sends what it has half a millisecond after the first.
            for at, (key, value, headers) in enumerate(records):
                produce(topic, value, key, -1, reports[at], headers=headers)
        except KafkaException as error:
            sending.give_up(at, error.args[0])
        except BufferError:  # its queue has no limit but memory
            sending.give_up(at, KafkaError(KafkaError._QUEUE_FULL))  # noqa: SLF001

    def _failure(self, topic: str, sending: Sending) -> PenstockError:
        errors = list(sending.errors.values())
        if any(error.fatal() for error in errors):
            log.warning("%s: a new producer begins: %s", self.where, errors[0])
            self.start_producer(self._bytes_max - BATCH_SLACK)
        found = self._refusal or translated(errors[0], f"{self.where}, topic {topic!r}")
        stored = len(sending.places) - len(errors)
        if stored or isinstance(found, Unavailable | StorageError):
            return Unconfirmed(
                f"{stored} of {len(sending.places)} messages are stored, the others may or may not "
                f"be: {found}"
            )
        return found


def _set_if_waited(future: "Future[Any]", found: Any) -> None:
    if not future.done():
        future.set_result(found)
