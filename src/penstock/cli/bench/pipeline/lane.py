"""The lane in this process, measured in a process of its own: from a store into Parquet files."""

import asyncio
import json
import resource
import sys
import threading
import time
from pathlib import Path
from typing import Any

from penstock.cli.bench.measure import resident_bytes
from penstock.cli.bench.pipeline import readings

FILE = """\
[pipeline.pms]
source = "file:{folder}/store/{topic}"
dataset = "pms"
lane = "process"
repository = "parquet:{folder}/warehouse"
checkpoint = "{folder}/checkpoint"
"""


WARM = 2_000
"""Readings that go before, so that the start of Python's libraries is not measured."""


async def _consumer(folder: Path, messages: int) -> Any:
    """A pipeline over a topic that was filled, not yet opened."""
    from penstock.pipeline.flow import Consumer
    from penstock.pipeline.settings import read_file

    await readings.fill_penstock(f"file:{folder}/store", readings.TOPIC, messages, partitions=1)
    file = folder / "pipeline.toml"
    file.write_text(FILE.format(folder=folder, topic=readings.TOPIC), encoding="utf-8")
    (pipeline,) = read_file(str(file)).pipelines.values()
    return Consumer(pipeline)


async def measure(folder: Path, messages: int) -> dict[str, Any]:
    """Fills a topic, then runs the pipeline over it; rows by the clock and by the processor."""
    from penstock.pipeline.arrow import leave_pandas_alone, reuse_memory

    leave_pandas_alone()
    reuse_memory()
    async with await _consumer(folder / "warm", WARM) as warm:
        await warm.run()
    async with await _consumer(folder, messages) as consumer:
        before = resident_bytes()
        began, used = time.perf_counter(), time.process_time()
        counts = await consumer.run()
        seconds, cpu = time.perf_counter() - began, time.process_time() - used
    return {
        "rows": counts.stored,
        "seconds": seconds,
        "cpu_s": cpu,
        "rows_per_s": counts.stored / seconds,
        "rows_per_cpu_s": counts.stored / cpu,
        "batches": consumer.batches,
        "resident_bytes_before": before,
        "resident_bytes_max": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "threads": threading.active_count(),
    }


if __name__ == "__main__":
    Path(sys.argv[1], "warm").mkdir()
    print(json.dumps(asyncio.run(measure(Path(sys.argv[1]), int(sys.argv[2])))))
