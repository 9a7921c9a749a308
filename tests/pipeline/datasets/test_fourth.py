"""The dataset of the guide, as a user adds it: one file, and no change elsewhere."""

import asyncio
import json
import re
from pathlib import Path

import pytest

from penstock.client.client import connect
from penstock.gateway.service import Gateway
from penstock.pipeline.datasets import finding
from tests.gateway.test_service import send
from tests.pipeline.lane import Lane

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "datasets.md"


@pytest.fixture
def module(tmp_path: Path) -> Path:
    (code,) = re.findall(
        r"^```python\n(.*?)^```$", GUIDE.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    path = tmp_path / "buoy.py"
    path.write_text(code, encoding="utf-8")
    return path


def test_a_file_goes_from_the_gateway_into_its_table(tmp_path: Path, module: Path) -> None:
    lane = Lane(tmp_path)
    text = lane.file.read_text(encoding="utf-8")
    text = text.replace('dataset = "pms"', f'dataset = "{module}"').replace("pms", "buoy")
    lane.file.write_text(text, encoding="utf-8")
    lane.topic = "monitoring.buoy"
    body = {
        "datasets": [
            {
                "buoy_id": "b1",
                "data": [
                    {
                        "time_local": f"20240501T1200{at:02}Z",
                        "water": {"temp": 20 + at, "speed": 0.5, "depth": 3 - at},
                    }
                    for at in range(4)
                ],
            }
        ]
    }

    async def post() -> None:
        async with (
            connect(lane.url) as client,
            Gateway(lane.url, port=0, client=client, datasets=(str(module),)) as gateway,
        ):
            data = json.dumps(body).encode()
            path, kind = "/devices/dataset/buoy", "application/json"
            assert (await asyncio.to_thread(send, gateway.port, path, data, kind))[0] == 200

    asyncio.run(post())
    counts = lane.run()
    assert (counts.read, counts.stored, counts.quarantined) == (4, 3, 1)  # depth 0 is refused
    assert [row["water"]["flow"] for row in lane.rows()] == [1.5, 1.0, 0.5]
    assert finding.find(str(module)).table == "analytics.buoy_monitoring"
