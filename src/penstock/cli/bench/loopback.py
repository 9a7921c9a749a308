"""The raw limit of the network: a few bytes to another process on this machine and back."""

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from penstock.cli.bench.measure import Latency, latency

ECHO: Final = """
import socket
with socket.create_server(("127.0.0.1", 0)) as door:
    print(door.getsockname()[1], flush=True)
    wire, _ = door.accept()
    with wire:
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while data := wire.recv(65536):
            wire.sendall(data)
"""
"""A process that sends back what it gets, with blocking calls: the least a server can do."""
SIZE: Final = 100


@contextmanager
def echoing(size: int = SIZE) -> Iterator[Callable[[], None]]:
    """A function that makes one round trip."""
    with (
        subprocess.Popen(  # noqa: S603 - our own text
            [sys.executable, "-S", "-c", ECHO], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        ) as process,
    ):
        assert process.stdout is not None
        try:
            port = int(process.stdout.readline())
            with socket.create_connection(("127.0.0.1", port)) as wire:
                wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                yield lambda: _round_trip(wire, bytes(size))
        finally:
            process.kill()


def _round_trip(wire: socket.socket, data: bytes) -> None:
    wire.sendall(data)
    left = len(data)
    while left:
        got = len(wire.recv(left))
        if not got:
            raise ConnectionError("the echoing process is gone")
        left -= got


def limit(seconds: float, size: int = SIZE) -> tuple[float, Latency]:
    """Round trips a second, one after the other, and how long one takes."""
    times: list[float] = []
    with echoing(size) as trip:
        ends = time.perf_counter() + seconds
        while not times or time.perf_counter() < ends:
            began = time.perf_counter()
            trip()
            times.append(time.perf_counter() - began)
    return len(times) / sum(times), latency(times)
