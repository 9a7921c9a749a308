"""The same pipeline on brokers of others that have readers: NATS and Redis."""

import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.pipeline.settings import read_file
from penstock.pipeline.spark import running
from tests.pipeline.lane import readings
from tests.pipeline.spark import world
from tests.servers.fixtures import unique

FILE = """
[pipeline.pms]
source = "{url}/{topic}"
dataset = "pms"
repository = "delta:{folder}/warehouse"
checkpoint = "{folder}/checkpoint"
"""


@pytest.fixture(params=["nats", "redis"])
def url(request: pytest.FixtureRequest) -> str:
    if request.param == "nats":
        return f"nats://{request.getfixturevalue('nats_server').address}"
    return f"redis://{request.getfixturevalue('redis_server')().address}"


def test_a_pipeline_runs_and_goes_on(spark: Any, url: str, tmp_path: Path) -> None:
    topic = unique("pms")
    file = tmp_path / "pipeline.toml"
    file.write_text(FILE.format(url=url, topic=topic, folder=tmp_path), encoding="utf-8")
    pipelines = list(read_file(str(file)).pipelines.values())
    world.post(url, topic, [*readings(20), b"bad"])
    (lane,) = running.run(pipelines, {}, threading.Event(), started=spark)
    assert (lane.counts.read, lane.counts.stored, lane.counts.quarantined) == (21, 20, 1)
    world.post(url, topic, readings(30))
    (lane,) = running.run(pipelines, {}, threading.Event(), started=spark)
    assert (lane.counts.read, lane.counts.stored, lane.counts.duplicate) == (30, 10, 20)
