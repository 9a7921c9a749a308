import asyncio
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from penstock.client.client import connect
from penstock.gateway.keys import Keys
from penstock.gateway.service import Gateway
from penstock.pipeline.datasets.features import FeatureView
from penstock.pipeline.flow import Consumer
from penstock.vocabulary.errors import InvalidArgument
from tests.contracts.suites.world import until
from tests.gateway.test_samples import DATA
from tests.pipeline.lane import Lane


def send(port: int, path: str, body: bytes | None = None, kind: str = "") -> tuple[int, Any]:
    headers = {"Content-Type": kind} if kind else {}
    asked = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, headers)
    try:
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_the_real_file_goes_from_the_gateway_into_the_table(tmp_path: Path) -> None:
    lane = Lane(tmp_path)
    csv = (DATA / "pms-2019-08.csv").read_bytes()

    async def steps() -> None:
        async with (
            connect(lane.url) as client,
            Gateway(lane.url, port=0, client=client) as gateway,
        ):

            async def post() -> None:
                status, content = await asyncio.to_thread(
                    send, gateway.port, "/devices/dataset/pms", csv, "text/csv"
                )
                assert status == 200
                assert content["details"][0]["description"] == "datasets:monitoring.pms | 2851"

            async def run() -> tuple[int, ...]:
                async with Consumer(lane.pipeline, client) as consumer:
                    counts = await consumer.run()
                    return counts.read, counts.stored, counts.quarantined, counts.duplicate

            await post()
            assert await run() == (2_851, 2_840, 11, 0)
            await post()  # within the id window
            assert await run() == (0, 0, 0, 0)

    lane.call(steps())
    assert len(lane.rows()) == 2_840


@pytest.mark.parametrize("name", ["pms", "mppt", "inverter"])
def test_topic_and_reader_exist_before_the_first_reading(tmp_path: Path, name: str) -> None:
    async def steps() -> None:
        url = f"file:{tmp_path}"
        async with connect(url) as client, Gateway(url, port=0, client=client) as gateway:
            topic = await client.describe_topic(f"monitoring.{name}")
            assert topic["policy"]["replay_s"] == 72 * 3600
            (reader,) = await client.subscriptions(f"monitoring.{name}")
            assert (reader["subscription"], reader["kind"]) == (
                f"analytics.{name}_monitoring", "reader",
            )  # fmt: skip
            body = (DATA / f"post-{name}.json").read_bytes()
            path = f"/devices/dataset/{name}"
            kind = "application/json"
            assert (await asyncio.to_thread(send, gateway.port, path, body, kind))[0] == 200

    asyncio.run(steps())


def test_the_reader_of_a_dataset_may_have_another_name(tmp_path: Path) -> None:
    async def steps() -> None:
        url = f"file:{tmp_path}"
        async with connect(url) as client:
            async with Gateway(url, port=0, client=client, readers={"pms": "mine"}):
                (reader,) = await client.subscriptions("monitoring.pms")
                assert (reader["subscription"], reader["kind"]) == ("mine", "reader")
            with pytest.raises(InvalidArgument, match="no dataset 'pm' for a reader; known: pms"):
                Gateway(url, port=0, client=client, readers={"pm": "mine"})

    asyncio.run(steps())


def test_a_second_gateway_does_not_fence_a_running_reader(tmp_path: Path) -> None:
    async def steps() -> None:
        url = f"file:{tmp_path}"
        async with connect(url) as client, Gateway(url, port=0, client=client):
            reader = await client.reader(
                "monitoring.pms", "analytics.pms_monitoring", owner="pipeline"
            )
            async with Gateway(url, port=0, client=client):
                assert await reader.plan() == []

    asyncio.run(steps())


def test_features_are_read_at_start_and_followed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody asks this gateway for them: it sees by itself what others change."""

    async def lines(port: int, path: str) -> int:
        caplog.clear()
        await asyncio.to_thread(send, port, path)
        return sum(path in each.getMessage() for each in caplog.records)

    async def steps() -> None:
        url = f"file:{tmp_path}"
        async with connect(url) as client:
            view = FeatureView(client)
            await view.change(operational=["validation"])
            async with Gateway(url, port=0, client=client) as gateway:
                assert await lines(gateway.port, "/api/versions") == 0
                await view.change(operational=["logging"])
                await until(lambda: lines(gateway.port, "/api/versions"), "a line")

    with caplog.at_level("INFO", "penstock.gateway"):
        asyncio.run(steps())


def test_without_keys_only_this_machine_is_served() -> None:
    with pytest.raises(InvalidArgument, match="this machine only"):
        Gateway("memory:", host="0.0.0.0")
    Gateway("memory:", host="localhost")
    Gateway("memory:", host="::1")
    Gateway("memory:", host="0.0.0.0", keys=Keys({"a": "0123456789abcdef"}))


def test_two_datasets_of_one_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "ours.py"
    path.write_text(
        "from dataclasses import replace\n"
        "from penstock.pipeline.datasets.pms import DATASET as PMS\n"
        "DATASET = replace(PMS, csv=None)\n"
    )
    with pytest.raises(InvalidArgument, match="two datasets named 'pms'"):
        Gateway("memory:", datasets=(str(path),))
    Gateway("memory:", datasets=("pms",))  # named twice, and the same


def test_a_taken_port_is_an_error_and_leaves_nothing_open(tmp_path: Path) -> None:
    async def steps() -> None:
        async with Gateway(f"file:{tmp_path}/a", port=0) as first:
            with pytest.raises(OSError, match="address already in use"):
                async with Gateway(f"file:{tmp_path}/b", port=first.port):
                    pass

    asyncio.run(steps())
