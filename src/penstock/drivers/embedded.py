"""The embedded driver: a broker inside this process, in a folder (`file:`) or in memory.

A folder opened twice in one process shares one broker, and so does `memory:NAME`; the last client
to close it closes it. The broker belongs to no loop: it answers each client on that client's own.
"""

import asyncio
import logging
import os
import socket
import sys
from asyncio import AbstractEventLoop
from collections.abc import Callable
from itertools import count
from pathlib import Path
from threading import Lock, Thread
from typing import Any, Final

import msgspec

from penstock.broker.asking import answer_request
from penstock.broker.broker import Broker
from penstock.broker.broker import Sink as BrokerSink
from penstock.broker.epochs import take_epoch
from penstock.broker.following import Seat, Wanted
from penstock.broker.loop_mailbox import LoopMailbox
from penstock.broker.mailbox import DIRECT
from penstock.drivers.legs import Followed, Leg
from penstock.drivers.owner import SOCKET, OwnerSocket
from penstock.drivers.port import (
    Answer,
    Attachment,
    Capabilities,
    Driver,
    Follower,
    Following,
    Sink,
)
from penstock.journal.disk import FolderDisk
from penstock.journal.memory import MemoryDisk
from penstock.vocabulary import requests as q
from penstock.vocabulary.claims import Claim, Renewal
from penstock.vocabulary.errors import (
    InvalidArgument,
    NotAStore,
    StorageError,
    StoreInUse,
    Unavailable,
)
from penstock.vocabulary.limits import PENDING_BYTES_MAX
from penstock.vocabulary.message import Durability, Kind
from penstock.vocabulary.records import Cause, Ranges
from penstock.vocabulary.units import UnitWish
from penstock.vocabulary.wishes import Wish

log = logging.getLogger("penstock.drivers")

TAKE_OVER_REATTACH_S: Final = 1.0
"""When an owner goes, consumers of other processes return to the next one."""

FILE: Final = Capabilities(
    scheme="file",
    durability=Durability.SYNCED,
    kinds=(Kind.SHARED, Kind.KEY_SHARED, Kind.MULTICAST),
    qos=(0, 1, 2),
    has_priority=True,
    has_delay=True,
    has_expiry=True,
    has_dedup=True,
    has_patterns=True,
    has_transactions=True,
)
MEMORY: Final = msgspec.structs.replace(FILE, scheme="memory", durability=Durability.MEMORY)


# -- which broker --------------------------------------------------------------------------------


class _Entry:
    __slots__ = ("broker", "lock", "owner", "users")

    def __init__(self) -> None:
        self.broker: Broker | None = None
        self.owner: OwnerSocket | None = None
        """Where other processes may attach."""
        self.users = 0
        self.lock = Lock()
        """Held while the broker is being opened or closed, so that nobody meets it half-way."""


class Registry:
    """The brokers open in this process, each with the number of its users."""

    def __init__(self) -> None:
        self._guard = Lock()
        self._entries: dict[str, _Entry] = {}

    def acquire(
        self,
        key: str,
        open_broker: Callable[[], Broker],
        listen: Callable[[Broker], OwnerSocket | None] | None = None,
    ) -> Broker:
        """The broker of this key, opened when nobody has it. Each call needs a `release`."""
        with self._guard:
            entry = self._entries.setdefault(key, _Entry())
            entry.users += 1
        with entry.lock:
            if entry.broker is None:
                try:
                    entry.broker = open_broker()
                    entry.owner = None if listen is None else listen(entry.broker)
                except BaseException:
                    self._leave(key, entry)
                    raise
            return entry.broker

    def release(self, key: str) -> None:
        """Gives a broker back; the last user closes it."""
        with self._guard:
            entry = self._entries[key]
        with entry.lock:
            broker, owner = entry.broker, entry.owner
            with self._guard:
                is_last = entry.users == 1
            if is_last and broker is not None:
                # Whoever comes meanwhile waits for the entry's lock and then opens it again.
                entry.broker = entry.owner = None
                if owner is not None:
                    owner.close()
                broker.close()
            self._leave(key, entry)

    def _leave(self, key: str, entry: _Entry) -> None:
        with self._guard:
            entry.users -= 1
            if not entry.users:
                self._entries.pop(key, None)

    def forget(self) -> None:
        """In a forked child: the parent's brokers run in the parent only.

        What the child inherited of them is closed, or a dead parent would seem to live on.
        """
        entries, self._entries = self._entries, {}
        self._guard = Lock()
        for entry in entries.values():
            if entry.owner is not None:
                entry.owner.forget()
            if entry.broker is not None:
                entry.broker.journal.disk.close()


_registry: Final = Registry()
_private_names: Final = count()
os.register_at_fork(after_in_child=_registry.forget)


class Share:
    """One user's part in a broker of the registry."""

    def __init__(self, broker: Broker, key: str, registry: Registry) -> None:
        self.broker = broker
        self._key = key
        self._registry = registry

    def again(self) -> "Share":
        """A part for one more user, while this one has not given up his."""
        broker = self._registry.acquire(self._key, _never)
        return Share(broker, self._key, self._registry)

    def release(self) -> None:
        """Gives the part up; the last one closes the broker, and waits until it is closed."""
        self._registry.release(self._key)


def _never() -> Broker:
    raise AssertionError("a shared broker is open")


async def open_embedded(url: str, loop: AbstractEventLoop) -> Driver:
    """A connection of this loop to the broker of a `file:` or `memory:` URL.

    A store that another process has open is used through that process.
    """
    scheme, _, rest = url.partition(":")
    if scheme == "memory":
        key = f"memory:{rest}" if rest else f"memory: {next(_private_names)}"
        broker = _registry.acquire(key, open_memory)
        return EmbeddedDriver(Share(broker, key, _registry), loop, MEMORY)
    folder = folder_of(url)
    try:
        return await open_file(folder, loop)
    except StoreInUse as error:
        from penstock.drivers.attached import open_attached  # noqa: PLC0415

        return await open_attached(folder, loop, lambda: _taken_over(folder), error)


def _taken_over(folder: Path) -> Share:
    """The store of an owner that is gone, opened here."""
    key = f"file:{folder}"
    return Share(_acquire(folder, key, TAKE_OVER_REATTACH_S), key, _registry)


def _acquire(folder: Path, key: str, reattach_s: float = 0.0) -> Broker:
    return _registry.acquire(
        key, lambda: open_folder(folder, reattach_s), lambda broker: _listen(folder, broker)
    )


def _listen(folder: Path, broker: Broker) -> OwnerSocket | None:
    """Lets other processes use the store, where the file system can."""

    async def serve(listening: socket.socket, stopped: asyncio.Event) -> None:
        from penstock.server.frames import FramesListener  # noqa: PLC0415

        listener = FramesListener(broker, path=str(folder / SOCKET), sock=listening)
        await listener.start()
        await stopped.wait()
        listener.drain()
        await listener.stop()

    try:
        return OwnerSocket(folder, serve)
    except (OSError, RuntimeError) as error:  # no sockets there, or no more threads
        log.info("other processes cannot use the store %s: %s", folder, error)
        return None


async def open_file(folder: Path, loop: AbstractEventLoop) -> "EmbeddedDriver":
    """A connection of this loop to the broker on a folder."""
    key = f"file:{folder}"
    opening = loop.run_in_executor(None, _acquire, folder, key)
    try:
        broker = await asyncio.shield(opening)
    except asyncio.CancelledError:
        # The opening cannot be stopped; what it opened is given back as soon as it is there.
        opening.add_done_callback(lambda done: _give_back(key, done, loop))
        raise
    return EmbeddedDriver(Share(broker, key, _registry), loop, FILE)


def _give_back(key: str, opening: "asyncio.Future[Broker]", loop: AbstractEventLoop) -> None:
    if not opening.cancelled() and opening.exception() is None:
        loop.run_in_executor(None, _registry.release, key)


def folder_of(url: str) -> Path:
    """The folder a `file:` URL names: `file:data`, `file:./data`, `file:/var/data`, `file:///…`.

    Raises InvalidArgument when it names none.
    """
    path = url.partition(":")[2]
    if path.startswith("//"):
        host, slash, rest = path[2:].partition("/")
        if host or not slash:
            raise InvalidArgument(
                f"{url!r} names a host; write 'file:DIR', or 'file:///DIR' for an absolute folder"
            )
        path = slash + rest
    if not path or "\0" in path:
        raise InvalidArgument(f"{url!r} names no folder; write for example 'file:./data'")
    return Path(path).expanduser().resolve()


def open_folder(folder: Path, reattach_s: float = 0.0) -> Broker:
    """A broker on a folder, which is created when missing. Raises StorageError and its kinds.

    Consumers that were attached before an unclean stop have `reattach_s` to return.
    """
    disk: FolderDisk | None = None
    try:
        disk = FolderDisk(folder)
        return Broker.open(disk, reattach_s=reattach_s)
    except NotADirectoryError as error:
        raise NotAStore(
            f"{folder} is a file, or lies in one; a store is a folder: name another"
        ) from error
    except OSError as error:
        raise StorageError(
            f"the store {folder} cannot be opened: {error.strerror or error}"
        ) from error
    finally:
        if disk is not None and sys.exc_info()[0] is not None:
            disk.close()


def open_memory() -> Broker:
    """A broker that keeps everything in memory."""
    return Broker.open(MemoryDisk(), durability=Durability.MEMORY)


# -- one client's connection ---------------------------------------------------------------------


class EmbeddedDriver:
    """One client's way to a broker in this process."""

    gathers_units = True

    def __init__(self, share: Share, loop: AbstractEventLoop, capabilities: Capabilities) -> None:
        self.capabilities = capabilities
        self.mailbox = LoopMailbox(loop, self._abandon)
        self.partitions = share.broker.partitions  # asked before each publish: no detour
        self._share = share
        self._broker = share.broker
        self._loop = loop
        self._is_closed = False
        self._attachments: dict[EmbeddedAttachment, None] = {}
        self._followings: dict[Following, None] = {}

    @property
    def wall(self) -> int:
        return self._broker.engine.clock.wall()

    def again(self, loop: AbstractEventLoop) -> "EmbeddedDriver":
        """One more connection to the same broker."""
        return EmbeddedDriver(self._share.again(), loop, self.capabilities)

    async def itself(self) -> "EmbeddedDriver":
        """This connection, for whoever expects one to be opened."""
        return self

    def has_room(self) -> bool:
        # Reading a number needs no lock: publishers may be late by one batch each.
        return self._broker.engine.pending_bytes <= PENDING_BYTES_MAX

    def when_room(self, answer: Answer) -> None:
        if self._broker.when_room((self.mailbox, answer, None)):
            self.mailbox.post([(answer, None)])

    def publish(  # noqa: PLR0913, PLR0917 - the hot path: no object per call
        self, topic: str, partition: int, batch: bytes, count: int, publisher: bytes, epoch: int,
        sequence: int, answer: Answer, partitions: int = 0,
    ) -> None:  # fmt: skip
        try:
            self._broker.publish(
                topic, partition, batch, count, publisher, epoch, sequence, self.mailbox, answer,
                partitions,
            )  # fmt: skip
        except IndexError as error:
            if partition < self._broker.partitions(topic):
                raise
            raise Unavailable(
                f"topic {topic!r} was created again with fewer partitions; publish once more"
            ) from error

    def commit_unit(
        self, wish: UnitWish, claims: list[tuple[Attachment, list[Claim]]], answer: Answer
    ) -> None:
        consumers: list[tuple[Any, list[Claim]]] = []
        for attachment, listed in claims:
            if attachment not in self._attachments or not isinstance(
                attachment, EmbeddedAttachment
            ):
                raise InvalidArgument(
                    "a message of the unit was received by another client, or its subscription "
                    "was closed since: ack messages with the client that received them"
                )
            consumers.append((attachment.consumer, listed))
        self._broker.commit_unit(wish, consumers, self.mailbox, answer)

    async def attach(self, wish: Wish, sink: Sink) -> "EmbeddedAttachment":
        seat = BrokerSink(self.mailbox, sink.on_slice, sink.on_closed, sink.on_revoked)
        consumer = self._broker.attach(
            wish.topic, wish.subscription, wish.policy, wish.start, wish.credit,
            wish.credit_bytes, wish.consumer, seat, is_named=wish.is_named,
        )  # fmt: skip
        return self._attachment(consumer, sink)

    def _attachment(self, consumer: Any, sink: Sink) -> "EmbeddedAttachment":
        attachment = EmbeddedAttachment(self._broker, consumer, sink, self.mailbox)
        self._attachments[attachment] = None
        attachment.on_detached = lambda: self._attachments.pop(attachment, None)
        return attachment

    async def follow(self, wish: Wish, follower: Follower) -> Following:
        def seat(topic: str) -> Seat:
            # Called under the broker's lock, which the leg waits for before it is used.
            leg = Leg(topic, follower, self._broker.engine.lock)

            def joined(consumer: Any) -> None:
                leg.attachment = self._attachment(consumer, leg)
                self.mailbox.post([(leg.introduce, None)])

            return Seat(
                BrokerSink(self.mailbox, leg.on_slice, leg.on_closed, leg.on_revoked), joined
            )

        wanted = Wanted(
            wish.topic, wish.subscription, wish.policy, wish.start, wish.credit,
            wish.credit_bytes, wish.consumer, is_named=wish.is_named,
        )  # fmt: skip
        following = self._broker.follow(wanted, seat, self.mailbox, follower.on_closed)
        return Followed(following, self._followings)

    def deliver(self) -> None:
        self.mailbox.deliver()

    def auto_create_topics(self, *, is_on: bool) -> None:
        """Whether first uses create topics, from now on and for everybody."""
        self._broker.auto_create_topics = is_on

    def take_epoch(self, publisher: bytes, at_least: int) -> int:
        """An epoch above every one of this publisher, at once."""
        return take_epoch(self._broker, publisher, at_least)

    async def ask(self, request: q.Request) -> Any:
        return await self._loop.run_in_executor(None, answer_request, self._broker, request)

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._lose()
        await asyncio.get_running_loop().run_in_executor(None, self._share.release)

    def _abandon(self) -> None:
        """The loop died with the client open: its consumers must not swallow messages."""
        if not self._is_closed:
            self._is_closed = True
            # In a thread of its own, since whoever found the loop dead may hold the broker's lock.
            Thread(target=self._give_up, name="penstock-abandon", daemon=True).start()

    def _give_up(self) -> None:
        self._lose()
        self._share.release()

    def _lose(self) -> None:
        for following in list(self._followings):
            following.leave()
        for attachment in list(self._attachments):
            attachment.lose()


class EmbeddedAttachment:
    """One consumer at an embedded broker."""

    def __init__(self, broker: Broker, consumer: Any, sink: Sink, mailbox: LoopMailbox) -> None:
        self._broker = broker
        self._consumer = consumer
        self._sink = sink
        self._mailbox = mailbox
        self.on_detached: Callable[[], object] = _nothing

    @property
    def consumer(self) -> Any:
        """The broker's side of it."""
        return self._consumer

    @property
    def lease_s(self) -> float:
        return float(self._consumer.subscription.policy.lease_s)

    def ack(self, claims: list[Claim]) -> None:
        refused = self._broker.ack(self._consumer, claims)
        if refused:
            self._sink.on_refused(refused)

    def give_back(self, claim: Claim, cause: Cause, delay_s: float | None, reason: str) -> None:
        refused = self._broker.give_back(self._consumer, claim, cause, delay_s, reason)
        if refused:
            self._sink.on_refused(refused)

    def extend(self, renewals: list[Renewal], seconds: float) -> None:
        self._broker.extend(self._consumer, renewals, seconds)

    def flush(self, answer: Answer) -> None:
        self._broker.flush(self._mailbox, answer)

    def detach(self, begun: dict[int, Ranges], answer: Answer) -> None:
        self.on_detached()
        self._broker.detach(self._consumer, begun, self._mailbox, answer)

    def lose(self) -> None:
        """Leaves without order, as when the process dies: what was begun is not known."""
        self.on_detached()
        self._broker.detach(self._consumer, {}, DIRECT, _nothing, is_clean=False)


def _nothing(_answer: Any = None) -> None:
    """Nobody waits for this."""
