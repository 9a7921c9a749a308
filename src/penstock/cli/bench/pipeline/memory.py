"""Memory of Spark's own processes while a case runs: the driver's Java, and each Python worker."""

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, Self

LOOK_S: Final = 0.1
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_DRIVER: Final = b"org.apache.spark.deploy.SparkSubmit"
_WORKERS: Final = (b"penstock.pipeline.spark.daemon", b"pyspark.daemon")


class Process(NamedTuple):
    """One process of this machine."""

    pid: int
    parent: int
    command: bytes
    resident: int


class Watch:
    """Looks while it is entered, which may be several times; the highest figures stay."""

    def __init__(self) -> None:
        self.driver = 0
        """Bytes of the driver's Java at most."""
        self.worker = 0
        """Bytes of the largest Python worker at most."""
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._ended.clear()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._thread is not None
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(LOOK_S):
            self.look(list(processes()), os.getpid())

    def look(self, found: list[Process], root: int) -> None:
        """Takes in what processes below `root` have now."""
        below = descendants(found, root)
        for each in found:
            if each.pid not in below:
                continue
            if _DRIVER in each.command:
                self.driver = max(self.driver, each.resident)
            elif any(name in each.command for name in _WORKERS):
                self.worker = max(self.worker, each.resident)


def processes() -> Iterator[Process]:
    """Every process of this machine; one that ends meanwhile is left out."""
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError, ValueError):
            stat = (place / "stat").read_bytes().rpartition(b")")[2].split()
            yield Process(
                int(place.name),
                int(stat[1]),
                (place / "cmdline").read_bytes(),
                int((place / "statm").read_bytes().split()[1]) * _PAGE,
            )


def descendants(found: list[Process], root: int) -> set[int]:
    """The processes that `root` started, and those that they started."""
    children: dict[int, list[int]] = {}
    for each in found:
        children.setdefault(each.parent, []).append(each.pid)
    below: set[int] = set()
    waiting = [root]
    while waiting:
        for pid in children.get(waiting.pop(), ()):
            below.add(pid)
            waiting.append(pid)
    return below
