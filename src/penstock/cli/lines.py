"""Lines from standard input or a file, as they come: a slow writer is not waited for.

A thread of its own reads, so that the event loop stays free and Ctrl-C works while a pipe is
silent. The queue between them is bounded: a fast file waits for the broker.
"""

import asyncio
import io
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import IO, Any, Final

from penstock.vocabulary.errors import TooLarge
from penstock.vocabulary.limits import BATCH_BYTES_MAX, BODY_BYTES_MAX

READ_BYTES: Final = 256 * 1024
LINES_MAX: Final = 1_000
"""Most lines handed over together."""
LINE_BYTES_MAX: Final = 2 * BATCH_BYTES_MAX
WAITING_MAX: Final = 8
"""Most blocks of lines read ahead."""


def read_all(path: Path | None) -> bytes:
    """Everything from a file, or from standard input. Raises TooLarge before memory runs out."""
    with _opened(path) as stream:
        data = b"".join(_upto(stream, BODY_BYTES_MAX))
    if len(data) > BODY_BYTES_MAX:
        raise TooLarge(
            f"{_name(path)} holds more than {BODY_BYTES_MAX} bytes, the limit of one body; "
            "with --lines each line is a message"
        )
    return data


async def batches(path: Path | None) -> AsyncIterator[list[bytes]]:
    """Lines without their ends, a few or many at a time, empty lines included."""
    loop = asyncio.get_running_loop()
    blocks: Queue[list[bytes] | BaseException | None] = Queue(WAITING_MAX)
    ready = asyncio.Event()

    def tell() -> None:
        with suppress(RuntimeError):  # the loop ended first
            loop.call_soon_threadsafe(ready.set)

    Thread(target=_fill, args=(path, blocks, tell), name="penstock-input", daemon=True).start()
    while True:
        while blocks.empty():
            ready.clear()
            if blocks.empty():
                await ready.wait()
        block = blocks.get()
        if block is None:
            return
        if isinstance(block, BaseException):
            raise block
        yield block


def _fill(path: Path | None, blocks: "Queue[Any]", tell: Any) -> None:
    try:
        with _opened(path) as stream:
            for block in split(_chunks(stream), _name(path)):
                blocks.put(block)
                tell()
        blocks.put(None)
    except Exception as error:  # noqa: BLE001 - raised again by whoever reads the lines
        blocks.put(error)
    tell()


def split(chunks: Iterator[bytes], name: str) -> Iterator[list[bytes]]:
    """Chunks of bytes into blocks of whole lines. Raises TooLarge for a line without an end."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > LINE_BYTES_MAX:
            raise TooLarge(f"{name} has a line of more than {LINE_BYTES_MAX} bytes")
        for at in range(0, len(lines), LINES_MAX):
            yield [line.removesuffix(b"\r") for line in lines[at : at + LINES_MAX]]
    if rest:
        yield [rest.removesuffix(b"\r")]


def _opened(path: Path | None) -> IO[bytes]:
    if path is not None:
        return path.open("rb", buffering=0)
    try:
        # A descriptor of its own: a thread that sleeps in a read must not hold the lock of
        # sys.stdin when the interpreter ends.
        return os.fdopen(os.dup(sys.stdin.fileno()), "rb", buffering=0)
    except (OSError, ValueError, io.UnsupportedOperation):
        return io.BytesIO(sys.stdin.buffer.read())


def _chunks(stream: IO[bytes]) -> Iterator[bytes]:
    while chunk := stream.read(READ_BYTES):
        yield chunk


def _upto(stream: IO[bytes], limit: int) -> Iterator[bytes]:
    size = 0
    for chunk in _chunks(stream):
        yield chunk
        size += len(chunk)
        if size > limit:
            return


def _name(path: Path | None) -> str:
    return "standard input" if path is None else str(path)
