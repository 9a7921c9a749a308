"""A driver that dies at a named moment; a program for a process of its own.

    python -m tests.pipeline.spark.dying FILE MOMENT SKIP

`range planned` happens in the process in which Spark plans: from there the driver is killed.
"""

import os
import signal
import sys
import threading
import time
from typing import Any

from penstock.pipeline.settings import read_file
from penstock.pipeline.spark import options, running, session, source

DRIVER = "PENSTOCK_TEST_DRIVER"
PLANNED = "range planned"


class DyingReader(source.PlanningReader):
    """Kills the driver once a range is planned that Spark does not know of yet."""

    def latestOffset(self, start: Any, limit: Any) -> Any:  # noqa: N802
        found = super().latestOffset(start, limit)
        if found != start:
            os.kill(int(os.environ[DRIVER]), signal.SIGKILL)
            time.sleep(60)
        return found


class DyingSource(source.PenstockSource):
    """The source with that reader."""

    def streamReader(self, schema: Any) -> Any:  # noqa: N802
        return DyingReader(options.parse(self._given), schema)


def main(file: str, moment: str, skip: int) -> None:
    """Runs the pipelines of a file, and dies."""
    os.environ[DRIVER] = str(os.getpid())
    seen: list[str] = []

    def at(name: str) -> None:
        if name == moment:
            seen.append(name)
            if len(seen) > skip:
                os.kill(os.getpid(), signal.SIGKILL)

    def show(_lanes: Any) -> None:
        at("restart")  # the query has just been started

    found = read_file(file)
    spark = session.start(found.spark)
    if moment == PLANNED:
        spark.dataSource.register(DyingSource)
    pipelines = list(found.pipelines.values())
    running.run(pipelines, found.spark, threading.Event(), at=at, show=show, started=spark)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
