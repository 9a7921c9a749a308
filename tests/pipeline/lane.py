"""A small world for the in-process lane: a broker in a folder, a pipeline file, what came out."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.client.client import Client, connect
from penstock.client.reader import ReadBatch
from penstock.pipeline.counting import Counts
from penstock.pipeline.flow import Consumer, ensure_topic
from penstock.pipeline.repositories.choose import open_repository
from penstock.pipeline.repositories.files import read_file
from penstock.pipeline.settings import Pipeline
from penstock.pipeline.settings import read_file as read_settings
from penstock.vocabulary.message import Message
from tests.pipeline.datasets import bodies

ROOT = Path(__file__).parents[2]
RUN = """
import asyncio, os, signal, sys
from penstock.pipeline.flow import Consumer
from penstock.pipeline.settings import read_file

file, moment, skip = sys.argv[1], sys.argv[2], int(sys.argv[3])
seen = []

def at(name):
    if name == moment:
        seen.append(name)
        if len(seen) > skip:
            os.kill(os.getpid(), signal.SIGKILL)

async def main():
    (pipeline,) = read_file(file).pipelines.values()
    async with Consumer(pipeline, at=at) as consumer:
        await consumer.run()

asyncio.run(main())
"""


class Lane:
    """Everything in one folder."""

    def __init__(self, folder: Path, dataset: str = "pms", extra: str = "") -> None:
        self.folder = folder
        self.url = f"file:{folder / 'data'}"
        self.topic = f"monitoring.{dataset}"
        self.file = folder / "pipeline.toml"
        self.file.write_text(
            f"[pipeline.{dataset}]\n"
            f'source = "{self.url}/{self.topic}"\n'
            f'dataset = "{dataset}"\n'
            'lane = "process"\n'
            f'repository = "delta:{folder / "warehouse"}"\n'
            f'checkpoint = "{folder / "checkpoint"}"\n' + extra,
            encoding="utf-8",
        )

    @property
    def pipeline(self) -> Pipeline:
        (found,) = read_settings(str(self.file)).pipelines.values()
        return found

    def call(self, steps: "Coroutine[Any, Any, Any]") -> Any:
        return asyncio.run(steps)

    def batches(self) -> list[ReadBatch]:
        """What a reader finds in the topic."""

        async def steps() -> list[ReadBatch]:
            async with connect(self.url) as client:
                reader = await client.reader(self.topic, "r", owner="o")
                found: list[ReadBatch] = []
                for planned in await reader.plan():
                    found += [batch async for batch in reader.batches(*planned)]
                return found

        return asyncio.run(steps())

    def post(
        self, given: Sequence[bytes | None], partitions: int = 1, *, ids: bool = False
    ) -> None:
        async def steps() -> None:
            async with connect(self.url) as client:
                if partitions > 1:
                    await client.create_topic(self.topic, partitions, replay_s=1e6)
                await ensure_topic(client, self.topic)
                messages = [
                    Message(
                        body=each,
                        key=f"k{at % 7}",
                        headers={"source": "site"},
                        id=f"reading-{at}" if ids else None,
                    )
                    for at, each in enumerate(given)
                ]
                await client.publish_many(self.topic, messages)

        self.call(steps())

    def trim(self) -> None:
        """Has the topic lose everything, as when its time is over and the reader is gone."""

        async def steps() -> None:
            async with connect(self.url) as client:
                reader = await client.reader(self.topic, self.pipeline.subscription, owner="x")
                await reader.release(force=True)
                await client.alter_topic(self.topic, max_age_s=0.1)
                async with asyncio.timeout(60):
                    while await client.peek(self.topic):  # noqa: ASYNC110 - it tells nobody
                        await asyncio.sleep(0.05)
                await client.alter_topic(self.topic, max_age_s=None)

        self.call(steps())

    def run(self) -> Counts:
        async def steps() -> Counts:
            async with Consumer(self.pipeline) as consumer:
                return await consumer.run()

        found: Counts = self.call(steps())
        return found

    def run_and_die(self, moment: str, skip: int = 0) -> None:
        """Runs in a process of its own that is killed at a named moment."""
        done = subprocess.run(
            [sys.executable, "-c", RUN, str(self.file), moment, str(skip)],
            env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
            capture_output=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == -signal.SIGKILL, done.stderr.decode()

    def rows(self, number: int = 0) -> list[dict[str, Any]]:
        pipeline = self.pipeline
        storage = open_repository(pipeline.repositories[number], pipeline.table, pipeline.dataset)
        try:
            parts = [read_file(storage.root, storage.dataset, each) for each in storage.files()]
            return pa.concat_tables(parts).to_pylist() if parts else []
        finally:
            storage.close()

    def messages(self, topic: str) -> list[Any]:
        async def steps() -> list[tuple[Any, dict[str, str]]]:
            async with connect(self.url) as client:
                if topic not in {each["topic"] for each in await client.topics()}:
                    return []
                found = await client.peek(topic, 100_000)
                return [(each.body, each.headers) for each in found]

        found: list[Any] = self.call(steps())
        return found

    def events(self) -> Counter[str]:
        return Counter(json.loads(body)["id"] for body, _ in self.messages(f"{self.topic}.events"))


def readings(count: int, first: int = 0) -> list[bytes]:
    """Different right readings, one a second."""
    return [
        bodies.encoded(
            bodies.pms(
                pms_id=f"PMS-{at % 3}",
                pack__amps=round(at / 8, 3),
                time_local=f"20200210T{at // 3600:02}{at // 60 % 60:02}{at % 60:02}+0700",
            )
        )
        for at in range(first, first + count)
    ]


async def use(client: Client) -> Client:
    return await client
