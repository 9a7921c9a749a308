"""Recently written messages, kept in memory for readers that follow closely."""

from collections import deque
from threading import Lock
from typing import Final

from penstock.vocabulary.records import Published, Record

RECORD_MEMORY: Final = 400
"""Bytes a cached record takes besides its data."""


class Cache:
    """Position → record of the newest groups, up to so many bytes. The writer adds, anybody reads.

    Only records of messages are kept: nothing else is ever read again.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._records: dict[int, Record] = {}
        self._groups: deque[tuple[list[int], int]] = deque()
        self._lock = Lock()
        self.get = self._records.get
        """The record at a position, or None."""

    def add(self, places: list[int], records: list[Record], size: int) -> None:
        """Keeps a group of so many bytes; the oldest groups make room, the newest always stays."""
        fresh = {
            place: record
            for place, record in zip(places, records, strict=True)
            if type(record) is Published
        }
        size += RECORD_MEMORY * len(fresh)
        with self._lock:
            self._records.update(fresh)
            self._groups.append((list(fresh), size))
            self._bytes += size
            while self._bytes > self._bytes_max and len(self._groups) > 1:
                old, freed = self._groups.popleft()
                self._bytes -= freed
                for place in old:
                    del self._records[place]

    def clear(self) -> None:
        """Forgets everything; what is asked for is then read from the disk."""
        with self._lock:
            self._records.clear()
            self._groups.clear()
            self._bytes = 0
