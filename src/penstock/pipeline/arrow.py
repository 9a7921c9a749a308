"""How Arrow is used in processes that are ours alone."""

import ctypes
import sys
from contextlib import suppress
from functools import cache
from typing import Final

import pyarrow as pa

from penstock.vocabulary.limits import MIB

TRIM_THRESHOLD: Final = -1
MMAP_THRESHOLD: Final = -3
"""Numbers of glibc's `mallopt`."""
KEPT_BYTES: Final = 1024 * MIB
LARGE_BYTES: Final = 32 * MIB
"""The most that glibc takes."""


@cache
def reuse_memory() -> None:
    """Has memory that was freed used again, instead of given back and fetched anew.

    Every batch needs the same memory as the one before it, in pieces of megabytes. By default they
    go back to the system at once, and come back page by page: a tenth of the time of a batch.
    """
    pa.set_memory_pool(pa.system_memory_pool())
    with suppress(OSError, AttributeError):  # another C library than glibc
        libc = ctypes.CDLL(None)
        libc.mallopt(MMAP_THRESHOLD, LARGE_BYTES)
        libc.mallopt(TRIM_THRESHOLD, KEPT_BYTES)


class _Hidden:
    """A finder for which there is no pandas."""

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is left alone", name=name)


def leave_pandas_alone() -> None:
    """Keeps pyarrow from importing pandas, which costs a second or more and is not needed here.

    At the first array it makes, pyarrow looks whether there is pandas. Told that there is none, it
    looks again when somebody asks for a pandas object, so nothing is lost. Only for processes that
    run no code of others: there, a Series would no longer be seen for what it is.
    """
    if "pandas" in sys.modules:
        return
    sys.meta_path.insert(0, _Hidden)
    try:
        pa.array([""])
    finally:
        sys.meta_path.remove(_Hidden)
