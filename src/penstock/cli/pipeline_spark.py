"""`penstock pipeline run` for pipelines that run on Spark."""

import asyncio
import threading
from typing import Any

from penstock.cli import logs
from penstock.cli.output import Output
from penstock.cli.pipeline import tell
from penstock.cli.progress import Progress


async def run_spark(pipelines: list[Any], file: str, output: Output) -> int:
    """Runs the pipelines as queries of one session, until TERM or INT, or nothing is new."""
    from penstock.client.signals import stopping_on_signals
    from penstock.pipeline.settings import read_file
    from penstock.pipeline.spark import running
    from penstock.vocabulary.errors import Unsupported

    for each in pipelines:
        if each.settings.lane != "spark":
            raise Unsupported(
                f"[pipeline.{each.name}] runs in this process and others of {file} on Spark: run "
                "them one by one, with --pipeline NAME"
            )
    logs.hush_java()
    stopping = threading.Event()
    with Progress(output, "Spark starts; rows") as progress, stopping_on_signals(stopping.set):

        def show(lanes: list[Any]) -> None:
            if any(each.batches for each in lanes):
                progress.label = "rows"
            progress.set(sum(each.counts.read for each in lanes))

        lanes = await asyncio.to_thread(
            running.run, pipelines, read_file(file).spark, stopping, show=show
        )
    tell(output, lanes)
    return 0
