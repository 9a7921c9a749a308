"""Features that change while pipelines run on Spark."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.client.client import connect
from penstock.pipeline.datasets.features import FeatureView
from penstock.pipeline.settings import read_file
from penstock.pipeline.spark import running
from penstock.pipeline.spark.query import SparkLane as Query
from penstock.pipeline.spark.refusals import QueryFailed
from tests.pipeline.datasets import bodies
from tests.pipeline.spark import world
from tests.pipeline.spark.lanes import SparkLane


class Broken(Exception):
    """A run breaks off here."""


def wide(hour: int) -> list[bytes]:
    """Readings that only range rules refuse."""
    return [
        bodies.encoded(bodies.pms(pack__dock=99, time_local=f"20200210T{hour:02}00{at:02}Z"))
        for at in range(10)
    ]


def switch(url: str, *names: str) -> None:
    """Makes these the operational features."""

    async def steps() -> None:
        async with connect(url) as client:
            await FeatureView(client).change(operational=list(names))

    asyncio.run(steps())


def test_range_rules_follow_the_feature_and_a_retry_keeps_what_it_had(
    spark: Any, tmp_path: Path
) -> None:
    with world.serving(tmp_path / "data") as url:  # features are the broker's: one of its own
        lane = SparkLane(tmp_path, url, "monitoring.pms")
        switch(url)
        world.post(url, lane.topic, wide(1))

        def at(name: str) -> None:
            if name == "ledger written":
                raise Broken

        with pytest.raises((Broken, QueryFailed)):
            running.run([lane.pipeline], {}, threading.Event(), at=at, started=spark)
        switch(url, "validation")
        counts = lane.run_on(spark)
        assert (counts.stored, counts.quarantined) == (10, 0), "planned while validation was off"
        world.post(url, lane.topic, wide(2))
        counts = lane.run_on(spark)
        assert (counts.stored, counts.quarantined) == (0, 10)


def test_a_running_query_follows_a_change(spark: Any, tmp_path: Path) -> None:
    with world.serving(tmp_path / "data") as url:
        lane = SparkLane(tmp_path, url, "monitoring.pms", 'trigger = "asap"\n')
        (pipeline,) = read_file(str(lane.file)).pipelines.values()
        stopping = threading.Event()
        wanted = iter([10, 20, 30])
        steps = iter([(["logging"], 2), (["logging", "validation"], 3)])
        world.post(url, lane.topic, wide(1))
        reached = [next(wanted)]

        def show(lanes: list[Query]) -> None:
            if lanes[0].counts.read < reached[0]:
                return
            step = next(steps, None)
            if step is None:
                stopping.set()
                return
            switch(url, *step[0])
            world.post(url, lane.topic, wide(step[1]))
            reached[0] = next(wanted)

        (found,) = running.run([pipeline], {}, stopping, show=show, started=spark)
    assert (found.counts.read, found.counts.stored, found.counts.quarantined) == (30, 10, 20)
