"""A pipeline on Spark as a small world: its file, its readings, its table, and drivers that die."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.pipeline.counting import Counts
from penstock.pipeline.ledger import Ledger, identity_of
from penstock.pipeline.settings import read_file
from penstock.pipeline.spark import running
from tests.pipeline.datasets import bodies
from tests.pipeline.lane import Lane, readings
from tests.pipeline.spark import world

MOMENTS = (
    "range planned", "offsets written", "ledger written", "files written", "published",
    "table committed", "Spark's commit", "progress reported", "restart",
)  # fmt: skip
BATCH = 40
DYING_S = 600


class SparkLane(Lane):
    """The same small world, with a served broker and the pipeline on Spark."""

    def __init__(self, folder: Path, url: str, topic: str, extra: str = "") -> None:
        super().__init__(folder)
        self.url = url
        self.topic = topic
        self.file.write_text(
            self.table_text("pms", extra) + '\n[spark]\nmaster = "local[1]"\n', encoding="utf-8"
        )

    def table_text(self, name: str, extra: str = "") -> str:
        """The part of the file that says what the pipeline is."""
        return (
            f"[pipeline.{name}]\n"
            f'source = "{self.url}/{self.topic}"\n'
            'dataset = "pms"\n'
            f'subscription = "{self.topic}.s"\n'
            f'repository = "delta:{self.folder / "warehouse"}"\n'
            f'checkpoint = "{self.folder / "checkpoint"}"\n{extra}'
        )

    def run_on(self, spark: Any) -> Counts:
        """Runs until nothing is new."""
        found = read_file(str(self.file))
        (lane,) = running.run(
            list(found.pipelines.values()), found.spark, threading.Event(), started=spark
        )
        return lane.counts

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def table(self) -> Path:
        return Path(self.pipeline.folders()[0])


def new_ledger(lane: SparkLane) -> Ledger:
    """The ledger of a pipeline that does not run; nothing is made for it."""
    return Ledger(lane.checkpoint, identity_of(lane.pipeline), is_made=False)


def duplicates(lane: SparkLane) -> int:
    """Rows that are in the table more than once."""
    rows = lane.rows() if lane.table().exists() else []
    return len(rows) - len({(row["pms_id"], row["time_event"]) for row in rows})


def whole(lane: SparkLane, wanted: int) -> None:
    """Every reading is stored once."""
    rows = lane.rows()
    said = {(row["pms_id"], row["time_event"], row["pack"]["amps"]) for row in rows}
    assert len(rows) == wanted
    assert len(said) == wanted


def mixed(count: int) -> list[bytes | None]:
    """Right readings, one in a hundred wrong, some twice, some contradicting others."""
    given: list[bytes | None] = list(readings(count))
    wrong: list[bytes | None] = [
        b"nonsense", b"", None, b'{"pms_id": NaN}', b"[" * 5_000, b"{" + b" " * 1_000_000,
        bodies.encoded(bodies.pms(pack__dock=1.5)), bodies.encoded(bodies.pms(more=1)),
        bodies.encoded(bodies.pms(time_local="20200210T150006")),
    ]  # fmt: skip
    for at in range(0, count, 100):
        given[at] = wrong[at // 100 % len(wrong)]
    given[50:60] = given[20:30]
    other = readings(count + 1, 0)[70]
    assert other is not None
    given[75] = other.replace(b'"amps":8.75', b'"amps":8.5')
    return given


def die(file: Path, moments: Mapping[str, str], skip: int = 0) -> None:
    """Runs the pipelines of a file in a process that is killed once each is at its moment."""
    done = subprocess.run(
        [
            sys.executable, "-m", "tests.pipeline.spark.dying", str(file),
            json.dumps(dict(moments)), str(skip),
        ],
        env=os.environ | world.ENVIRONMENT, cwd=world.ROOT, capture_output=True, timeout=DYING_S,
        check=False,
    )  # fmt: skip
    said = done.stderr.decode()[-3000:]
    assert done.returncode == -signal.SIGKILL, f"{moments}: {said}"


def plain_rows(lane: SparkLane) -> list[str]:
    """The rows of the table in one order, without the moment they arrived."""
    return sorted(
        repr({name: value for name, value in row.items() if name != "time_processing"})
        for row in lane.rows()
    )
