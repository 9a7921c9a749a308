"""The port to a folder of files, and the real one. The only journal module that calls the OS.

A Disk holds a flat set of named files. Names become durable with `sync_names`, contents with
`File.sync`. Every method raises OSError on failure and never retries.
"""

import errno
import fcntl
import mmap
import os
from itertools import takewhile
from pathlib import Path
from typing import Protocol

from penstock.vocabulary.errors import StoreInUse


class File(Protocol):
    """One open file."""

    name: str
    size: int

    def pread(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes from `offset`; fewer only at the end of the file."""
        ...

    def pwrite(self, offset: int, data: bytes | memoryview) -> None:
        """Writes all of `data`; a short write is continued, an error is raised."""
        ...

    def sync(self) -> None:
        """Returns when everything written to this file so far is durable."""
        ...

    def pwrite_synced(self, offset: int, data: bytes | memoryview) -> None:
        """As `pwrite`, and returns when this data is durable; one call where the system can.

        From a `Disk.buffer`, on 512-byte edges, it goes past the page cache where that is allowed.
        """
        ...

    def expect(self) -> None:
        """All of it will be read soon: the system may begin with that."""
        ...

    def finish(self) -> None:
        """Gives up what only writing needs: nothing more is written for now."""
        ...

    def close(self) -> None:
        """Ends the use of this file."""
        ...


class Disk(Protocol):
    """One folder."""

    def names(self) -> list[str]:
        """All file names, sorted."""
        ...

    def open(self, name: str) -> File:
        """An existing file. Raises FileNotFoundError."""
        ...

    def create(self, name: str, size: int) -> File:
        """A new file of `size` bytes that read as zeros. Raises FileExistsError."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Gives a file a new name, replacing what had it."""
        ...

    def unlink(self, name: str) -> None:
        """Removes a file."""
        ...

    def buffer(self, size: int) -> memoryview:
        """Memory, full of zeros, from which this disk writes fastest."""
        ...

    def sync_names(self) -> None:
        """Returns when creations, renames and removals so far are durable."""
        ...

    def free_bytes(self) -> int:
        """Space left for new files."""
        ...

    def lock(self) -> None:
        """Claims the folder for one writer. Raises StoreInUse."""
        ...

    def owner(self) -> str | None:
        """Who has claimed the folder, or None. Claims nothing."""
        ...

    def close(self) -> None:
        """Releases the lock."""
        ...


class RealFile:
    """A file of the operating system."""

    def __init__(self, name: str, descriptor: int, folder: int) -> None:
        self.name = name
        self.size = os.fstat(descriptor).st_size
        self._descriptor = descriptor
        self._folder = folder
        self._direct = -1
        """The same file opened to write past the page cache."""
        self._is_direct = True
        """No filesystem has refused that yet."""

    def pread(self, offset: int, length: int) -> bytes:
        data = os.pread(self._descriptor, length, offset)
        while len(data) < length:
            more = os.pread(self._descriptor, length - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def pwrite(self, offset: int, data: bytes | memoryview) -> None:
        written = os.pwrite(self._descriptor, data, offset)
        while written < len(data):
            written += os.pwrite(self._descriptor, memoryview(data)[written:], offset + written)
        self.size = max(self.size, offset + len(data))

    def sync(self) -> None:
        os.fdatasync(self._descriptor)

    def pwrite_synced(self, offset: int, data: bytes | memoryview) -> None:
        # One system call instead of two: the interpreter lock is given up and regained once.
        written = 0
        if self._is_direct and isinstance(data, memoryview):
            written = self._pwrite_direct(offset, data)
        while written < len(data):
            rest = memoryview(data)[written:]
            written += os.pwritev(self._descriptor, (rest,), offset + written, os.RWF_DSYNC)
        self.size = max(self.size, offset + len(data))

    def _pwrite_direct(self, offset: int, data: memoryview) -> int:
        """Bytes written; 0 when this filesystem or device refuses to go past the page cache."""
        try:
            if self._direct < 0:
                flags = os.O_WRONLY | os.O_DIRECT | os.O_CLOEXEC
                self._direct = os.open(self.name, flags, dir_fd=self._folder)
            return os.pwritev(self._direct, (data,), offset, os.RWF_DSYNC)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self._is_direct = False
            self.finish()
            return 0

    def expect(self) -> None:
        os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_WILLNEED)

    def finish(self) -> None:
        if self._direct >= 0:
            os.close(self._direct)
            self._direct = -1

    def close(self) -> None:
        self.finish()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class FolderDisk:
    """A real folder, files 0600, folder 0700. `is_read_only` is for looking at a store."""

    LOCK = "lock"
    SOCKET = "socket"
    """Where the owner listens; no file of the store."""

    def __init__(self, folder: Path, *, is_read_only: bool = False) -> None:
        self.folder = folder
        self._lock = -1
        self._access = os.O_RDONLY if is_read_only else os.O_RDWR
        if not is_read_only and not folder.exists():
            fresh = [folder, *takewhile(lambda parent: not parent.exists(), folder.parents)]
            folder.mkdir(mode=0o700, parents=True)
            for made in fresh:
                _sync_folder(made.parent)
        self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)

    def names(self) -> list[str]:
        return sorted(
            name for name in os.listdir(self._folder) if name not in {self.LOCK, self.SOCKET}
        )

    def open(self, name: str) -> RealFile:
        descriptor = os.open(name, self._access | os.O_CLOEXEC, dir_fd=self._folder)
        return RealFile(name, descriptor, self._folder)

    def create(self, name: str, size: int) -> RealFile:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(name, flags, 0o600, dir_fd=self._folder)
        try:
            if size:
                os.posix_fallocate(descriptor, 0, size)
        except OSError:
            os.close(descriptor)
            os.unlink(name, dir_fd=self._folder)
            raise
        return RealFile(name, descriptor, self._folder)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new, src_dir_fd=self._folder, dst_dir_fd=self._folder)

    def unlink(self, name: str) -> None:
        os.unlink(name, dir_fd=self._folder)

    def buffer(self, size: int) -> memoryview:
        return memoryview(mmap.mmap(-1, size))  # begins on a page, as direct writes demand

    def sync_names(self) -> None:
        os.fsync(self._folder)

    def free_bytes(self) -> int:
        usage = os.statvfs(self._folder)
        return usage.f_bavail * usage.f_frsize

    def lock(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self.LOCK, flags, 0o600, dir_fd=self._folder)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = _owner(descriptor)
            os.close(descriptor)
            raise StoreInUse(
                f"the store {self.folder} is open in process {owner}; stop that process, "
                "or use its client instead of opening the folder twice"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._lock = descriptor

    def owner(self) -> str | None:
        try:
            descriptor = os.open(self.LOCK, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._folder)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return f"process {_owner(descriptor)}"
        else:
            return None
        finally:
            os.close(descriptor)

    def close(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
        if self._folder >= 0:
            os.close(self._folder)
            self._folder = -1


def _owner(descriptor: int) -> str:
    return os.pread(descriptor, 32, 0).decode(errors="replace").strip("\0\n ") or "?"


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
