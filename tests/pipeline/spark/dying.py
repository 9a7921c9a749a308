"""A driver that is killed once each of its pipelines is at a moment; a program of its own.

    python -m tests.pipeline.spark.dying FILE '{"pipeline": "moment", …}' SKIP

Every pipeline runs until its moment has passed SKIP times, and waits there; when all of them wait,
the driver kills itself, and Spark's Java and Python die with it. So one session is enough for many
moments. `range planned` happens in the process in which Spark plans: that one waits too.
"""

import json
import os
import shutil
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from penstock.pipeline.settings import Pipeline, read_file
from penstock.pipeline.spark import options, running, session, source

DRIVER = "PENSTOCK_TEST_DRIVER"
WAITING = "PENSTOCK_TEST_WAITING"
PLANNED = "range planned"
RESTART = "restart"
PAUSE_S = 0.02


class DyingReader(source.PlanningReader):
    """Waits once a range is planned that Spark does not know of yet."""

    def latestOffset(self, start: Any, limit: Any) -> Any:  # noqa: N802
        found = super().latestOffset(start, limit)
        place = Path(os.environ[WAITING]) / self._subscription
        if found != start and place.exists():
            place.write_text("waiting", encoding="utf-8")
            while _is_alive(int(os.environ[DRIVER])):
                time.sleep(PAUSE_S)
        return found


class DyingSource(source.PenstockSource):
    """The source with that reader."""

    def streamReader(self, schema: Any) -> Any:  # noqa: N802
        return DyingReader(options.parse(self._given), schema)


class Dying:
    """The pipelines of a process, each in a thread, and how many of them have come to their end."""

    def __init__(self, moments: dict[str, str], skip: int, folder: Path) -> None:
        self._moments = moments
        self._skip = skip
        self._folder = folder
        self._arrived = threading.Semaphore(0)
        self._turns = threading.Semaphore(running.STARTING_MAX)

    def run(self, pipeline: Pipeline, spark: Any) -> None:
        """Runs a pipeline until its moment."""
        moment = self._moments[pipeline.name]
        seen: list[str] = []
        place = self._folder / pipeline.subscription
        if moment == PLANNED:
            place.write_text("", encoding="utf-8")

        def at(name: str) -> None:
            if name == moment:
                seen.append(name)
                if len(seen) > self._skip:
                    sys.stderr.write(f"{pipeline.name} is at {moment!r}\n")
                    self._turns.release()
                    self._arrived.release()
                    threading.Event().wait()

        def show(_lanes: Any) -> None:
            if moment == PLANNED and place.read_text("utf-8"):
                seen.extend([PLANNED] * self._skip)  # planning waits the first time
                at(PLANNED)
            if moment == RESTART:
                seen.extend([RESTART] * self._skip)
                at(RESTART)  # the query has just been started

        self._turns.acquire()
        try:
            running.run([pipeline], {}, threading.Event(), at=at, show=show, started=spark)
        finally:  # it came to an end, and not to its moment
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)

    def wait(self, count: int) -> None:
        """Returns when so many pipelines have arrived."""
        for _ in range(count):
            self._arrived.acquire()


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def main(file: str, moments: dict[str, str], skip: int) -> None:
    """Runs the pipelines of a file, and dies."""
    found = read_file(file)
    folder = Path(file).parent / "waiting"
    shutil.rmtree(folder, ignore_errors=True)  # a driver before this one had others wait
    folder.mkdir()
    os.environ[DRIVER] = str(os.getpid())
    os.environ[WAITING] = str(folder)
    spark = session.start(found.spark, running.jars_of(list(found.pipelines.values())))
    if PLANNED in moments.values():
        session.register(spark, DyingSource)
    dying = Dying(moments, skip, folder)
    for pipeline in found.pipelines.values():
        threading.Thread(target=dying.run, args=(pipeline, spark), daemon=True).start()
    dying.wait(len(found.pipelines))
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]))
