"""Segment files that wait for use: zeroed ahead of need, or given back by compaction."""

from contextlib import suppress
from threading import Lock
from typing import Final

from penstock.journal.disk import Disk, File
from penstock.journal.segment import SEGMENT_PREFIX
from penstock.journal.settings import JournalSettings
from penstock.vocabulary.limits import MIB

_ZERO_BYTES: Final = 1 * MIB
"""Zeroed at once; a group that comes meanwhile waits for so much."""


class Spares:
    """The free segments of one store. Every call may come from another thread."""

    def __init__(self, disk: Disk, settings: JournalSettings) -> None:
        self.files: list[File] = []
        self.next_number = 1
        """Of the next file that is created."""
        self.size = settings.segment_bytes_min
        """How large the next segment is; it grows with the store."""
        self._disk = disk
        self._settings = settings
        self._lock = Lock()

    @property
    def bytes(self) -> int:
        """What they take on the disk."""
        return sum(file.size for file in list(self.files))

    def grow(self) -> None:
        """The next segment is twice as large, within the limit."""
        self.size = min(self.size * 2, self._settings.segment_bytes_max)

    def resume(self, size: int) -> None:
        """Goes on with segments at least as large as the last one."""
        self.size = min(max(self.size, size), self._settings.segment_bytes_max)

    def take(self, size: int) -> File:
        """A file of at least `size` bytes: a spare one, else a new one. Raises OSError."""
        with self._lock:
            for file in self.files:
                if file.size >= size:
                    self.files.remove(file)
                    return file
        return self._create(size)

    def prepare(self, count: int) -> None:
        """Makes a zeroed one ready unless `count` are. Raises OSError."""
        self._drop_small()
        size = self.size
        if self._disk.free_bytes() < self._settings.reserve_bytes + size:
            return  # What is left is for acks: a failed attempt would stop them too.
        with self._lock:
            if sum(file.size >= size for file in self.files) >= count:
                return
        file = self._create(size)
        if self._settings.is_zeroing:
            self._zero(file)
        with self._lock:
            self.files.append(file)

    def give(self, file: File) -> bool:
        """Takes a file nobody needs; False when there are enough and it was removed."""
        self._drop_small()
        with self._lock:
            is_kept = len(self.files) < self._settings.spare_count and file.size >= self.size
            if is_kept:
                self.files.append(file)
        if not is_kept:
            self._remove(file)
        return is_kept

    def close(self) -> None:
        """Closes the files; they stay."""
        for file in self.files:
            file.close()

    def _drop_small(self) -> None:
        """Removes those made before segments grew: nobody would take them any more."""
        with self._lock:
            small = [file for file in self.files if file.size < self.size]
            self.files = [file for file in self.files if file.size >= self.size]
        for file in small:
            self._remove(file)

    def _remove(self, file: File) -> None:
        name = file.name
        file.close()
        with suppress(OSError):  # What stays is found by the next opening and used again.
            self._disk.unlink(name)

    def _create(self, size: int) -> File:
        with self._lock:
            name = f"{SEGMENT_PREFIX}{self.next_number:08d}"
            self.next_number += 1
        file = self._disk.create(name, size)
        file.sync()
        self._disk.sync_names()
        return file

    def _zero(self, file: File) -> None:
        zeros = self._disk.buffer(min(_ZERO_BYTES, file.size))
        try:
            for at in range(0, file.size, _ZERO_BYTES):
                file.pwrite_synced(at, zeros[: file.size - at])
        except OSError:
            self._remove(file)
            raise
