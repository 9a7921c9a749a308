"""Connections to DuckDB: one for each thread that parses, used again by whoever comes next.

A connection has threads of its own and joins them when it is destroyed. In a child of a fork they
do not exist, and whatever destroys the connection there ends the child. So each one is held here,
and a child keeps those of its parent, untouched, for as long as it lives.
"""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import duckdb

_made: Final[dict[int, duckdb.DuckDBPyConnection]] = {}
_idle: Final[list[duckdb.DuckDBPyConnection]] = []


@contextmanager
def borrowed() -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection for this thread alone; nobody uses it again after a failure."""
    try:
        connection = _idle.pop()
    except IndexError:
        connection = duckdb.connect(":memory:", config={"threads": 1, "memory_limit": "512MB"})
        _made[id(connection)] = connection
    try:
        yield connection
    except BaseException:
        del _made[id(connection)]
        connection.close()
        raise
    _idle.append(connection)


def _leave() -> None:
    for each in _made.values():
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))  # also at the end of the interpreter
    _made.clear()
    _idle.clear()


os.register_at_fork(after_in_child=_leave)
