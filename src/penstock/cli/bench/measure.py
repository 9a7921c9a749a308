"""Small instruments: percentiles, memory of this process, bytes in a folder."""

import gc
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from penstock.vocabulary.limits import MIB

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


class Latency(msgspec.Struct, frozen=True):
    """A distribution of times, in seconds."""

    count: int
    p50: float
    p90: float
    p99: float
    p999: float
    worst: float


def latency(times: Sequence[float]) -> Latency:
    """The distribution of these times."""
    rows = sorted(times)
    assert rows, "nothing was measured"
    return Latency(
        len(rows),
        percentile(rows, 0.5),
        percentile(rows, 0.9),
        percentile(rows, 0.99),
        percentile(rows, 0.999),
        rows[-1],
    )


def percentile(rows: Sequence[float], share: float) -> float:
    """The value below which `share` of the sorted rows lie (nearest rank)."""
    return rows[min(len(rows) - 1, int(len(rows) * share))]


def p99s(times: Sequence[float], count: int) -> list[float]:
    """The p99 of each `count` times in a row."""
    parts = [sorted(times[at : at + count]) for at in range(0, len(times), count)]
    return [percentile(part, 0.99) for part in parts]


def resident_bytes() -> int:
    """Memory this process has in use, as the system counts it."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * _PAGE


def settled_bytes() -> int:
    """Memory in use once everything that is garbage was collected."""
    for _ in range(3):
        gc.collect()
    return resident_bytes()


def segment_bytes(folder: Path) -> int:
    """Bytes of the segment files of a store, used and spare."""
    return sum(entry.stat().st_size for entry in folder.glob("segment-*"))


def other_bytes(folder: Path) -> int:
    """Bytes of its other files: snapshots and superblock."""
    every = sum(entry.stat().st_size for entry in folder.iterdir() if entry.is_file())
    return every - segment_bytes(folder)


def segment_bytes_max(folder: Path) -> int:
    """The size of the largest segment file."""
    return max((entry.stat().st_size for entry in folder.glob("segment-*")), default=MIB)


def bodies(count: int, size: int) -> list[bytes]:
    """Distinct bodies of one size that do not compress."""
    noise = os.urandom(size)
    return [(b"%012d" % i + noise)[:size] for i in range(count)]
