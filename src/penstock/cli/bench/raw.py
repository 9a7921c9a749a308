"""The raw limit: what this disk does without Penstock, with the same calls and the same sizes.

One file is written full of zeros first, as the journal does with its segments; then each step is
one `pwrite` and one `fdatasync`.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from penstock.cli.bench.measure import Latency, latency
from penstock.vocabulary.limits import MIB

FILE_BYTES: Final = 64 * MIB
SMALL_BYTES: Final = 512
"""A group of one small message takes one 512-byte edge."""
_ZEROS: Final = bytes(MIB)


def sync_times(folder: Path, seconds: float, size: int = SMALL_BYTES) -> list[float]:
    """How long each small synced write takes, one after the other."""
    times: list[float] = []
    with writing(folder, size) as write:
        ends = time.perf_counter() + seconds
        while time.perf_counter() < ends:
            began = time.perf_counter()
            write()
            times.append(time.perf_counter() - began)
    return times


@contextmanager
def writing(folder: Path, size: int = SMALL_BYTES) -> Iterator[Callable[[], None]]:
    """A function that does one small synced write."""
    with _zeroed(folder) as descriptor:
        data = os.urandom(size)
        at = 0

        def write() -> None:
            nonlocal at
            os.pwrite(descriptor, data, at)
            os.fdatasync(descriptor)
            at = (at + size) % (FILE_BYTES - size)

        yield write


def sync_limit(folder: Path, seconds: float) -> tuple[float, Latency]:
    """Small synced writes a second, and how long one takes."""
    times = sync_times(folder, seconds)
    return len(times) / sum(times), latency(times)


def write_rate(folder: Path, sizes: Sequence[int], seconds: float) -> float:
    """Bytes a second when groups of these sizes are written and synced, round and round."""
    sizes = [min(size, FILE_BYTES) for size in sizes]
    assert sizes, "no group sizes were measured"
    with _zeroed(folder) as descriptor:
        data = memoryview(os.urandom(max(sizes)))
        written = at = turn = 0
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            size = sizes[turn % len(sizes)]
            turn += 1
            at = 0 if at + size > FILE_BYTES else at
            os.pwrite(descriptor, data[:size], at)
            os.fdatasync(descriptor)
            at += size
            written += size
        return written / (time.perf_counter() - began)


@contextmanager
def _zeroed(folder: Path) -> Iterator[int]:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"raw-{os.getpid()}"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, FILE_BYTES)
        for at in range(0, FILE_BYTES, len(_ZEROS)):
            os.pwrite(descriptor, _ZEROS, at)
        os.fsync(descriptor)
        yield descriptor
    finally:
        os.close(descriptor)
        path.unlink()
