"""A disk in memory: for `memory:` brokers, and for proving what survives a crash.

A plain MemoryDisk is a table of byte arrays. A recording one also remembers what is durable and
what is pending, numbers every operation that changes something, lets a hook fail any of them,
and can tell every content that a power cut at this moment may leave behind.
"""

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import Final

import msgspec

from penstock.journal.powercut import (
    ALL_POLICIES,
    Changes,
    Content,
    Image,
    Naming,
    Policy,
    PowerCut,
    Write,
    change_names,
    place,
)
from penstock.vocabulary.errors import StoreInUse

__all__ = ["ALL_POLICIES", "Crashed", "Image", "MemoryDisk", "MemoryFile", "Op", "Policy", "Verb"]

FREE_BYTES: Final = 1 << 40


class Crashed(BaseException):
    """The program ends here. Not an Exception, so that nothing under test goes on after it."""


class Verb(StrEnum):
    """What an operation does."""

    CREATE = "create"
    WRITE = "write"
    SYNC = "sync"
    RENAME = "rename"
    UNLINK = "unlink"
    SYNC_NAMES = "sync-names"


class Op(msgspec.Struct, frozen=True):
    """One operation; `number` is its index in the trace."""

    number: int
    verb: Verb
    file: str = ""
    offset: int = 0
    length: int = 0


class MemoryFile:
    """One open file of a MemoryDisk."""

    def __init__(self, name: str, content: Content, disk: "MemoryDisk") -> None:
        self.name = name
        self.size = len(content.cache)
        self._content = content
        self._disk = disk
        self._is_open = True

    def pread(self, offset: int, length: int) -> bytes:
        self._check_open()
        return bytes(self._content.cache[offset : offset + length])

    def pwrite(self, offset: int, data: bytes | memoryview) -> None:
        self._check_open()
        self._disk.write(self.name, self._content, offset, bytes(data))
        self.size = max(self.size, len(self._content.cache))

    def sync(self) -> None:
        self._check_open()
        self._disk.sync(self.name, self._content)

    def pwrite_synced(self, offset: int, data: bytes | memoryview) -> None:
        self.pwrite(offset, data)
        self._disk.sync(self.name, self._content, offset, len(data))

    def expect(self) -> None:
        self._check_open()

    def finish(self) -> None:
        self._check_open()

    def close(self) -> None:
        self._is_open = False

    def _check_open(self) -> None:
        if not self._is_open:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.name)


class MemoryDisk:
    """A folder in memory. Its files outlive `close`, as those of a folder do.

    Operations are numbered, and seen by the hooks below, only with `record=True`.
    """

    def __init__(self, *, record: bool = False) -> None:
        self.free = FREE_BYTES
        """What `free_bytes` answers."""
        self.trace: list[Op] = []
        self.on_operation: Callable[[Op], None] | None = None
        """Called before each operation; an OSError it raises is how the operation fails."""
        self.drop_on_failed_sync = False
        """A failed sync forgets the file's pending writes, as a kernel marks its pages clean."""
        self.crash_at: str | int | None = None
        """The point, or the number of the operation, at which Crashed is raised."""
        self._is_recording = record
        self._is_crashed = False
        self._is_locked = False
        self._names: dict[str, Content] = {}
        self._durable_names: dict[str, Content] = {}
        self._pending: list[Write | Naming] = []

    @classmethod
    def from_image(cls, image: Image, *, record: bool = False) -> "MemoryDisk":
        """A disk with these files, all durable. Contents are copied only when written to."""
        disk = cls(record=record)
        for name, data in image.items():
            disk._names[name] = Content(data, data, is_fresh=False)
        disk._durable_names = dict(disk._names)
        return disk

    def image(self) -> Image:
        """What readers see now; what a killed process leaves on a machine that goes on."""
        return {name: bytes(content.cache) for name, content in self._names.items()}

    def crash_images(
        self, policies: Iterable[Policy] = ALL_POLICIES, seed: int = 0
    ) -> Iterator[tuple[str, Image]]:
        """The distinct contents a power cut at this moment may leave, each with its label.

        Built one by one when asked for; what the disk does meanwhile does not change them.
        """
        assert self._is_recording, "only a recording disk knows what is pending"
        return PowerCut(self._durable_names, self._pending, seed).images(policies)

    def point(self, name: str) -> None:
        """A named place in the program under test. Raises Crashed when `crash_at` names it."""
        if self.crash_at == name:
            self._crash(name)

    # -- the port -------------------------------------------------------------------------------

    def names(self) -> list[str]:
        return sorted(self._names)

    def open(self, name: str) -> MemoryFile:
        return MemoryFile(name, self._content(name), self)

    def create(self, name: str, size: int) -> MemoryFile:
        if name in self._names:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
        number = self._begin(Verb.CREATE, name, length=size)
        durable = bytes(size) if self._is_recording else b""
        content = Content(bytearray(size), durable, is_fresh=True)
        self._change_names(number, ((name, content),))
        return MemoryFile(name, content, self)

    def rename(self, old: str, new: str) -> None:
        assert old != new, old
        content = self._content(old)
        number = self._begin(Verb.RENAME, old)
        self._change_names(number, ((new, content), (old, None)))

    def unlink(self, name: str) -> None:
        self._content(name)
        number = self._begin(Verb.UNLINK, name)
        self._change_names(number, ((name, None),))

    def buffer(self, size: int) -> memoryview:
        return memoryview(bytearray(size))

    def sync_names(self) -> None:
        self._begin(Verb.SYNC_NAMES)
        if self._is_recording:
            self._pending = [each for each in self._pending if isinstance(each, Write)]
            self._durable_names = dict(self._names)

    def free_bytes(self) -> int:
        return self.free

    def lock(self) -> None:
        if self._is_locked:
            raise StoreInUse("this memory store is open already; close its other user first")
        self._is_locked = True

    def owner(self) -> str | None:
        return "this process" if self._is_locked else None

    def close(self) -> None:
        self._is_locked = False

    # -- what an open file asks for -------------------------------------------------------------

    def write(self, name: str, content: Content, offset: int, data: bytes) -> None:
        """Changes what readers see; durable only after `sync`."""
        number = self._begin(Verb.WRITE, name, offset, len(data))
        cache = content.cache
        if not isinstance(cache, bytearray):
            cache = content.cache = bytearray(cache)
        place(cache, offset, data)
        if self._is_recording:
            self._pending.append(Write(number, name, content, offset, bytes(data)))

    def sync(self, name: str, content: Content, offset: int = 0, length: int = 0) -> None:
        """Makes the writes to one file durable, or only those to a part of it.

        Its name stays as durable as it was.
        """
        try:
            self._begin(Verb.SYNC, name, offset, length)
        except OSError:
            if self.drop_on_failed_sync:
                self._forget_writes(content)
                content.cache = content.durable
            raise
        if self._is_recording:
            end = offset + length if length else len(content.cache)
            self._forget_writes(content, offset, end)
            durable = bytearray(content.durable)
            place(durable, offset, bytes(content.cache[offset:end]))
            content.durable = bytes(durable)
            content.is_fresh = False

    # -- recording ------------------------------------------------------------------------------

    def _begin(self, verb: Verb, file: str = "", offset: int = 0, length: int = 0) -> int:
        """The number of an operation that is about to happen. Raises what prevents it."""
        if self._is_crashed:
            raise Crashed(f"{verb} after the crash")
        if not self._is_recording:
            return 0
        op = Op(len(self.trace), verb, file, offset, length)
        self.trace.append(op)
        if self.crash_at == op.number:
            self._crash(f"operation {op.number}")
        if self.on_operation is not None:
            self.on_operation(op)
        return op.number

    def _crash(self, where: str) -> None:
        # Nothing may happen on this disk any more, not even the clean-up of who was interrupted.
        self._is_crashed = True
        raise Crashed(where)

    def _change_names(self, number: int, changes: Changes) -> None:
        change_names(self._names, changes)
        if self._is_recording:
            self._pending.append(Naming(number, changes))

    def _forget_writes(self, content: Content, start: int = 0, end: int = 1 << 62) -> None:
        self._pending = [
            each
            for each in self._pending
            if isinstance(each, Naming)
            or each.content is not content
            or each.offset < start
            or each.offset + len(each.data) > end
        ]

    def _content(self, name: str) -> Content:
        try:
            return self._names[name]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name) from None
