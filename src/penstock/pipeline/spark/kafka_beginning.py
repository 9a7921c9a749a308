"""How a pipeline from Kafka begins: is the topic the one it has read, is it whole, which epoch.

A topic that was deleted and made anew begins with offset 0 again; once it is longer than the old
one was, its offsets do not give it away. Kafka gives every topic an id of its own. It is kept
beside the ledger, for all epochs: `resume` does not make another topic the same.

What a batch publishes is a transaction that notes the batch's end in a group of the epoch. A
pipeline that starts over begins with low offsets again: under an epoch of its earlier life they
would pass for repeats, and what it refused would be nowhere.
"""

from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Final

from penstock.pipeline.holding import differs
from penstock.pipeline.ledger import Ledger
from penstock.pipeline.refusals import SourceDiffers
from penstock.pipeline.repositories.syncing import write_whole
from penstock.pipeline.settings import Pipeline
from penstock.pipeline.spark.checkpoint import COMMITS, OFFSETS, SparkCheckpoint
from penstock.pipeline.spark.kafka_link import KafkaLink, Offsets

NAME: Final = "kafka-topic"
"""The file in the checkpoint that holds the topic's id."""


def check_topic(pipeline: Pipeline, ledger: Ledger, found: str | None) -> None:
    """Compares a topic's id with the one that is kept. Raises SourceDiffers.

    A ledger without entries has read nothing, and an older checkpoint keeps no id: any is right.
    """
    known = _known(pipeline)
    if ledger.last is not None and known is not None:
        check_same(pipeline, known, found)


def check_same(pipeline: Pipeline, known: str | None, found: str | None) -> None:
    """Raises SourceDiffers when two ids are told, and they are two topics'."""
    if known is not None and found is not None and known != found:
        raise SourceDiffers(
            f"{pipeline.source} was made anew since pipeline {pipeline.name!r} read it: Kafka knew "
            f"the topic by the id {known}, and knows it by {found} now. Its offsets are those of "
            "other messages. Start with another checkpoint and table"
        )


def note_topic(pipeline: Pipeline, found: str | None) -> None:
    """Keeps the id, once nothing is left that could be refused."""
    if found is not None and found != _known(pipeline):
        write_whole(Path(pipeline.checkpoint) / NAME, found.encode())


def _known(pipeline: Pipeline) -> str | None:
    try:
        found = (Path(pipeline.checkpoint) / NAME).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None
    return found or None


def check_held(
    pipeline: Pipeline, need: Offsets, upto: Offsets, held: Mapping[int, tuple[int, int]]
) -> None:
    """Raises SourceDiffers when a topic lacks anything between two ends.

    `held` is the lowest offset and the end of each partition.
    """
    gone = []
    for at, end in sorted(upto.items()):
        low, has = held.get(at, (0, 0))
        first = need.get(at, 0)
        if has < end:
            raise differs(pipeline, at, (first, end), (low, has))
        if low > first:
            gone.append(f"{at}:{first} to {at}:{low}")
    if gone:
        raise SourceDiffers(
            f"{pipeline.source} no longer holds {', '.join(gone)}, which pipeline "
            f"{pipeline.name!r} reads next: Kafka has removed it. `penstock pipeline resume "
            "--from-table --skip-missing` goes on behind it; then it is never stored"
        )


def group_of(pipeline: Pipeline, epoch: int) -> str:
    """The group that notes how far the batches of an epoch are published."""
    return f"penstock.pipeline.{pipeline.name}.{epoch}"


def producer_of(pipeline: Pipeline) -> str:
    """The name under which a pipeline publishes."""
    return f"penstock.{pipeline.name}"


def choose_epoch(link: KafkaLink, pipeline: Pipeline, ledger: Ledger) -> None:
    """Has an epoch without batches be one that Kafka does not know yet."""
    last = ledger.last
    if (last is not None and last.batch >= 0) or _has_batches(pipeline, ledger.epoch):
        return
    # Before asking: what an earlier life published last is noted a moment after it is confirmed.
    link.claim(producer_of(pipeline))
    chosen = next(
        each
        for each in count(ledger.epoch)
        if not link.has_committed(pipeline.topic, group_of(pipeline, each))
    )
    if last is None:
        ledger.first_epoch = chosen
    elif chosen != last.epoch:
        ledger.open_epoch(last.ends(), chosen)


def _has_batches(pipeline: Pipeline, epoch: int) -> bool:
    """Whether Spark knows more than a batch that was planned: the ledger is then to be compared."""
    spark = SparkCheckpoint(Path(pipeline.checkpoint) / "spark" / str(epoch))
    return spark.last(COMMITS) >= 0 or spark.last(OFFSETS) > 0
