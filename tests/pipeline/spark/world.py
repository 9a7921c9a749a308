"""A small world for the Spark lane: a served broker in a process of its own, and one session."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

from pyspark import SparkContext, java_gateway

from penstock.client.client import connect
from penstock.pipeline.flow import ensure_topic
from penstock.pipeline.spark import query, session
from penstock.pipeline.spark.refusals import SessionFailed
from penstock.vocabulary.message import Message

ROOT = Path(__file__).parents[3]
ENVIRONMENT = {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a Java that lives a minute: it compiles quickly instead of well."""
OPTIONS = {
    "master": "local[2]",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": SHORT_LIVED,
    "spark.sql.shuffle.partitions": "1",
}
WAIT_S = 180.0
T = TypeVar("T")
SERVE = """
import asyncio, sys
from pathlib import Path
from penstock.broker.broker import Broker
from penstock.journal.disk import FolderDisk
from penstock.server.frames import FramesListener

async def main():
    broker = Broker.open(FolderDisk(Path(sys.argv[1])))
    listener = FramesListener(broker, port=0)
    await listener.start()
    print(listener.address, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await listener.stop()
    broker.close()

asyncio.run(main())
"""


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """A broker in a process of its own; its URL. It ends with the block."""
    folder.mkdir(parents=True, exist_ok=True)
    with subprocess.Popen(
        [sys.executable, "-c", SERVE, str(folder)], env=os.environ | ENVIRONMENT,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        try:
            address = process.stdout.readline().strip()
            assert address, "the broker did not start"
            yield f"penstock://{address}"
        finally:
            process.communicate("", timeout=WAIT_S)


@contextmanager
def sparking(*jars: str) -> Iterator[Any]:
    """A session; it ends with the block, and its Java too."""
    os.environ["PYTHONPATH"] = ENVIRONMENT["PYTHONPATH"]
    # Nothing of ours runs between fork and exec: in a process where gRPC's threads run, Java would
    # sometimes not even begin.
    with patch.object(java_gateway, "Popen", begin_java):
        try:
            spark = session.start(OPTIONS, jars, name="tests")
        except SessionFailed as error:
            if "JAVA_GATEWAY_EXITED" not in str(error):
                raise
            print(f"a second start, since {error}", file=sys.stderr)  # noqa: T201
            spark = session.start(OPTIONS, jars, name="tests")
    try:
        yield spark
    finally:
        end_spark(spark)


def begin_java(command: list[str], **options: Any) -> "subprocess.Popen[bytes]":
    """Starts Java in a process group of its own, so that Ctrl-C does not reach it."""
    options.pop("preexec_fn", None)
    return subprocess.Popen(command, process_group=0, **options)


def end_spark(spark: Any) -> None:
    """Stops a session and the Java process behind it, so that the next one starts afresh."""
    spark.stop()
    end_java()


def end_java() -> None:
    """Ends the Java process of a session that was stopped."""
    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(WAIT_S)
        SparkContext._gateway = None
        SparkContext._jvm = None


def post(
    url: str, topic: str, given: Sequence[bytes | None], partitions: int = 1, *, first: int = 0,
    ids: bool = False,
) -> None:  # fmt: skip
    """Publishes bodies, keys going round, so that every partition gets some."""

    async def steps() -> None:
        async with connect(url) as client:
            if topic not in {each["topic"] for each in await client.topics()}:
                await client.create_topic(topic, partitions, replay_s=1e6)
            await ensure_topic(client, topic)
            messages = [
                Message(
                    body=each,
                    key=f"k{at % 7}",
                    headers={"source": "site", "at": str(at)},
                    id=f"reading-{at}" if ids else None,
                )
                for at, each in enumerate(given, first)
            ]
            await client.publish_many(topic, messages)

    asyncio.run(steps())


def lag(url: str, topic: str, name: str) -> int:
    """Messages the broker holds for a reader."""

    async def steps() -> int:
        async with connect(url) as client:
            (found,) = [
                each for each in await client.subscriptions(topic) if each["subscription"] == name
            ]
            return int(found["waiting"])

    return asyncio.run(steps())


def patiently(call: Callable[[], T]) -> T:
    """What a call returns; tried again, as a pipeline does, when Spark's Python came up too late.

    Spark gives it ten seconds.
    """
    for _ in range(query.REVIVALS_MAX):
        try:
            return call()
        except Exception as error:
            if query.NOT_UP not in str(error):
                raise
    return call()


def until(condition: Any, what: str) -> None:
    """Waits for a condition."""
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end, f"{what} did not happen"
        time.sleep(0.05)
