"""Several pipelines in one Spark session: checked, started, watched, stopped."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Final

from penstock.client.blocking import LoopThread
from penstock.client.client import Client, connect
from penstock.pipeline.flow import At
from penstock.pipeline.ledger import Ledger
from penstock.pipeline.settings import Pipeline
from penstock.pipeline.spark import session
from penstock.pipeline.spark.failing import java_watched
from penstock.pipeline.spark.feed import Feed
from penstock.pipeline.spark.kafka_feed import KafkaFeed
from penstock.pipeline.spark.kafka_url import is_kafka
from penstock.pipeline.spark.launching import end_of_java
from penstock.pipeline.spark.penstock_feed import PenstockFeed
from penstock.pipeline.spark.query import SparkLane
from penstock.vocabulary.errors import Unsupported

POLL_S: Final = 0.05
STARTING_MAX: Final = 2
"""Queries that start at the same time, for the first time or again. Each has Python processes to
start, which Spark gives ten seconds: all together on a small machine, none of them is in time, and
started again all together they never are."""


@contextmanager
def opened(pipelines: Sequence[Pipeline], at: At = lambda _: None) -> Iterator[list[SparkLane]]:
    """The pipelines, checked and locked; nothing has been read yet. Raises refusals."""
    thread = LoopThread()
    with ExitStack() as stack:
        stack.callback(thread.stop)
        clients: dict[str, Client] = {}
        for url in dict.fromkeys(each.url for each in pipelines if not is_kafka(each.url)):
            clients[url] = connect(url)
            stack.callback(_close, thread, clients[url])
            thread.call(clients[url].open())  # a broker that is away is told before a table is made
        for each in pipelines:
            if is_kafka(each.url):
                KafkaFeed.look(each)  # the same, and a topic that is not there
        lanes = []
        for each in pipelines:
            lane = SparkLane(each, partial(_feed, each, clients.get(each.url), thread), at)
            stack.callback(lane.close)
            lane.open()
            lanes.append(lane)
        yield lanes


def run(
    pipelines: Sequence[Pipeline], spark: Mapping[str, Any], stopping: threading.Event, *,
    at: At = lambda _: None, show: Callable[[list[SparkLane]], None] = lambda _: None,
    started: Any = None,
) -> list[SparkLane]:  # fmt: skip
    """Runs pipelines until nothing is new, as their triggers say, or until `stopping` is set.

    `started` is a session to use; else one is made, and stopped at the end. Raises refusals,
    QueryFailed, CountsDiffer and what storing raises.
    """
    check_master(pipelines, spark)
    jars = jars_of(pipelines)
    if started is None:
        session.check_spark()
        session.check_java()
        session.settings(spark, jars)  # raises when the jars are not to be had
    with opened(pipelines, at) as lanes, java_watched(end_of_java), ExitStack() as stack:
        stack.callback(_close_own)
        if started is None:
            started = session.start(spark, jars)
            stack.callback(started.stop)
        try:
            waiting, going = list(lanes), list[SparkLane]()
            while (waiting or going) and not stopping.wait(POLL_S):
                while waiting and sum(each.is_starting for each in going) < STARTING_MAX:
                    going.append(waiting.pop(0))
                    going[-1].start(started)
                for lane in list(going):
                    lane.poll()
                    if lane.is_active:
                        continue
                    going.remove(lane)
                    if lane.is_to_start_again():
                        waiting.append(lane)
                    else:
                        lane.check()
                show(lanes)
        finally:
            for lane in lanes:  # all at once: none begins another batch while one is waited for
                lane.ask_to_stop()
            with ExitStack() as ending:  # each of them, also when one fails
                for lane in reversed(lanes):
                    ending.callback(lane.stop)
        for lane in lanes:
            lane.check()
            lane.poll()
        show(lanes)
        return lanes


def _feed(pipeline: Pipeline, client: Client | None, thread: LoopThread, ledger: Ledger) -> Feed:
    if client is None:
        return KafkaFeed(pipeline, ledger)
    return PenstockFeed(pipeline, client, thread.call, ledger)


def jars_of(pipelines: Sequence[Pipeline]) -> list[str]:
    """The jars these pipelines need: Spark's Kafka connector, its Delta writer, or none."""
    found = []
    if any(is_kafka(each.url) for each in pipelines):
        found.append(session.KAFKA)
    if any(each.settings.writer == "spark" for each in pipelines):
        found.append(session.DELTA)
    return found


def check_master(pipelines: Sequence[Pipeline], spark: Mapping[str, Any]) -> None:
    """Raises Unsupported when workers on other machines would have to open a folder of this one."""
    master = session.settings(spark)["spark.master"]
    if master.startswith("local"):
        return
    for each in pipelines:
        if each.url.startswith("file:"):
            raise Unsupported(
                f"[pipeline.{each.name}] reads {each.url}, which workers of master {master!r} "
                'cannot reach; serve it and use penstock://, or say master = "local[*]"'
            )


def _close(thread: LoopThread, client: Client) -> None:
    thread.call(client.close())


def _close_own() -> None:
    """Connections the driver made to do a range again."""
    from penstock.pipeline.spark.connecting import close_all  # noqa: PLC0415

    close_all()
