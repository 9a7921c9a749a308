"""The driver is killed at every named moment of a batch: nothing is lost, nothing comes twice."""

import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.pipeline import operations
from penstock.pipeline.settings import read_file
from penstock.pipeline.spark import running
from tests.pipeline.lane import readings
from tests.pipeline.spark import world
from tests.pipeline.spark.lanes import BATCH, MOMENTS, SparkLane, die, duplicates, whole
from tests.servers.fixtures import unique

POSTED = BATCH + 10


class Fleet:
    """Pipelines, all in one file and one driver."""

    def __init__(self, url: str, folder: Path, size: int) -> None:
        self.lanes: list[SparkLane] = []
        self.names = [f"p{at}" for at in range(size)]
        self.file = folder / "all.toml"
        self.posted = 0
        text = ""
        for number, name in enumerate(self.names):
            (folder / name).mkdir()
            lane = SparkLane(folder / name, url, unique("monitoring.pms"))
            part = lane.table_text(name, f"max_rows_per_batch = {BATCH}\n")
            if number % 2 == 0:  # every other one has two tables, and sends its rows on
                one = f'"delta:{lane.folder / "warehouse"}"'
                part = part.replace(one, f'[{one}, "parquet:{lane.folder / "plain"}"]')
                part += f'publish = "{lane.topic}.rows"\n'
            lane.file.write_text(part, encoding="utf-8")
            self.lanes.append(lane)
            text += part
        spark = "".join(f"'{key}' = '{value}'\n" for key, value in world.OPTIONS.items())
        self.file.write_text(f"{text}\n[spark]\n{spark}", encoding="utf-8")

    def post(self) -> None:
        """Readings for more than one batch, and one that is refused."""
        given = [*readings(POSTED, self.posted), b"nonsense"]
        for lane in self.lanes:
            world.post(lane.url, lane.topic, given, 2, first=self.posted * 2, ids=True)
        self.posted += POSTED

    def kill(self, number: int) -> None:
        """Runs all; the driver dies when each is at its moment, which is another one each time."""
        turned = [MOMENTS[(number + at) % len(MOMENTS)] for at in range(len(self.names))]
        die(self.file, dict(zip(self.names, turned, strict=True)))


@pytest.mark.parametrize(
    ("size", "kills"),
    [
        pytest.param(len(MOMENTS), 1, id="each moment once"),
        pytest.param(1, len(MOMENTS) * 6, id="more than fifty kills", marks=pytest.mark.prove),
    ],
)
def test_the_driver_is_killed_at_each_moment_and_the_next_run_finishes(
    spark: Any, served: str, tmp_path: Path, tally: Any, size: int, kills: int
) -> None:
    """Each run finishes what the one before it left, goes on, and dies.

    One driver dies with a pipeline at each moment; to be proved, one dies for each moment.
    """
    fleet = Fleet(served, tmp_path, size)
    for number in range(kills):
        fleet.post()
        fleet.kill(number)
        assert not any(map(duplicates, fleet.lanes)), f"after kill {number}"
    found = list(read_file(str(fleet.file)).pipelines.values())
    running.run(found, {}, threading.Event(), started=spark)
    rows = fleet.posted * size
    missing = rows - sum(len(lane.rows()) - duplicates(lane) for lane in fleet.lanes)
    double = sum(map(duplicates, fleet.lanes))
    tally.add("spark", kills=kills, rows=rows, missing=missing, duplicate=double)
    assert (missing, double) == (0, 0)
    for lane in fleet.lanes:
        whole(lane, fleet.posted)
        counts = operations.counted(lane.pipeline)
        assert (counts.stored, counts.quarantined) == (fleet.posted, kills)
        assert set(lane.events().values()) <= {1}, "an event is published once"
        assert len(lane.messages(f"{lane.topic}.quarantine")) == kills
        assert world.lag(served, lane.topic, f"{lane.topic}.s") == 0
        if lane.pipeline.publish is not None:
            assert len(lane.messages(lane.pipeline.publish)) == fleet.posted
            both = [sorted(map(repr, lane.rows(at))) for at in (0, 1)]
            assert both[0] == both[1], "both tables hold the same"
