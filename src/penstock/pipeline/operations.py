"""What an operator does with a pipeline beside running it: look, resume, compact, replay."""

import json
import logging
import secrets
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import msgspec

from penstock.client.client import Client
from penstock.client.identified import Numbered
from penstock.pipeline import counting, messages
from penstock.pipeline.counting import Counts
from penstock.pipeline.flow import ensure_quarantine, ensure_topic
from penstock.pipeline.ledger import Ledger, epoch_in, identity_of, judge, set_aside
from penstock.pipeline.mending import Fix, mended
from penstock.pipeline.refusals import CheckpointForeign, PipelineRefused
from penstock.pipeline.repositories.choose import has_table, open_repository
from penstock.pipeline.repositories.compaction import Compacted, compact
from penstock.pipeline.repositories.delta import DeltaStorage
from penstock.pipeline.repositories.port import Committed, TableStorage
from penstock.pipeline.settings import Pipeline
from penstock.vocabulary.errors import StorageError, UnknownTopic
from penstock.vocabulary.message import Message

log = logging.getLogger("penstock.pipeline")


class Status(msgspec.Struct):
    """How far a pipeline is."""

    pipeline: str
    epoch: int
    batch: int
    """The newest batch in the ledger; -1 before the first."""
    is_finished: bool
    """True when every table holds that batch."""
    rows: dict[str, int]
    """Rows of each table."""
    lag: int | None
    """Messages the broker holds for it; None when it cannot be asked."""
    counts: Counts
    """Over all batches that were counted."""


def opened_tables(pipeline: Pipeline, stack: ExitStack) -> dict[str, TableStorage | None]:
    """The tables of a pipeline by their folders; None for one that does not exist yet."""
    found: dict[str, TableStorage | None] = {}
    for url, folder in zip(pipeline.repositories, pipeline.folders(), strict=True):
        found[folder] = None
        if has_table(url, pipeline.table):
            table = open_repository(url, pipeline.table, pipeline.dataset)
            stack.callback(table.close)
            found[folder] = table
    return found


class Opened:
    """The checkpoint and the tables of a pipeline that does not run; what is missing stays so."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        with ExitStack() as stack:
            folder = Path(pipeline.checkpoint)
            self.ledger = Ledger(folder, identity_of(pipeline), is_made=False)
            stack.callback(self.ledger.close)
            self.tables = opened_tables(pipeline, stack)
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def unfinished(self) -> list[str]:
        """The tables that lack the newest batch. Raises a refusal where they do not fit."""
        return [
            root
            for root, table in self.tables.items()
            if judge(self.ledger, root, {} if table is None else table.last(self.pipeline.name))
        ]


async def status(pipeline: Pipeline, client: Client | None) -> Status:
    """How far a pipeline is. It must not run at the same time."""
    return looked(pipeline, None if client is None else await _lag(pipeline, client))


def looked(pipeline: Pipeline, lag: int | None) -> Status:
    """How far a pipeline is, given its lag."""
    with Opened(pipeline) as opened:
        last = opened.ledger.last
        return Status(
            pipeline.name,
            opened.ledger.epoch,
            -1 if last is None else last.batch,
            not opened.unfinished(),
            {
                root: 0 if table is None else sum(each.rows for each in table.files())
                for root, table in opened.tables.items()
            },
            lag,
            counted(pipeline),
        )


def counted(pipeline: Pipeline) -> Counts:
    """The sum over all batches; one that was done twice counts once."""
    return counting.counted(Path(pipeline.checkpoint))


async def _lag(pipeline: Pipeline, client: Client) -> int | None:
    try:
        found = await client.subscriptions(pipeline.topic)
    except UnknownTopic:
        return 0
    for each in found:
        if each["subscription"] == pipeline.subscription:
            return int(each.get("waiting", 0))
    return None


def resume(pipeline: Pipeline) -> dict[int, int]:
    """Opens a new epoch where the tables end; returns where that is.

    A checkpoint that is damaged or another's is renamed, kept, and named in the log.
    Raises PipelineRefused when tables have ended at different places, or hold nothing.
    """
    folder, identity = Path(pipeline.checkpoint), identity_of(pipeline)
    with ExitStack() as stack:
        ledger: Ledger | None = None
        try:
            ledger = Ledger(folder, identity, is_made=False)
            stack.callback(ledger.close)
            epoch = ledger.epoch
        except (CheckpointForeign, StorageError) as error:
            log.info("%s", error)
            epoch = epoch_in(folder, pipeline.name)
        stored = _stored(pipeline, stack)
        start = _end(pipeline, stored)
        batches = {
            each: min(committed[each].batch for committed in stored.values())
            for each in set.intersection(*map(set, stored.values()))
        }
        source = folder
        if ledger is None:
            source = set_aside(folder, pipeline.name)
            log.warning("the checkpoint %s could not be used; it is kept in %s", folder, source)
            ledger = Ledger(folder, identity)
            stack.callback(ledger.close)
        newest = max(max(committed) for committed in stored.values())
        counting.keep(source, folder, pipeline.name, batches)
        ledger.open_epoch(start, max(epoch, newest) + 1)
        return start


def _stored(pipeline: Pipeline, stack: ExitStack) -> dict[str, dict[int, Committed]]:
    """What each table holds of a pipeline. Raises PipelineRefused for one that holds nothing."""
    found: dict[str, dict[int, Committed]] = {}
    for root, table in opened_tables(pipeline, stack).items():
        found[root] = {} if table is None else table.last(pipeline.name)
        if not found[root]:
            raise PipelineRefused(
                f"table {root} holds nothing of pipeline {pipeline.name!r}: there is no end to "
                "resume from. Run it with an empty checkpoint instead"
            )
    return found


def _end(pipeline: Pipeline, stored: dict[str, dict[int, Committed]]) -> dict[int, int]:
    """The farthest end of each partition over all epochs, which is the same in all tables."""
    ends: dict[str, dict[int, int]] = {}
    for root, committed in stored.items():
        ends[root] = {}
        for epoch, each in sorted(committed.items()):
            _check_source(pipeline, root, epoch, each)
            for partition, end in each.source["ends"].items():
                ends[root][int(partition)] = max(end, ends[root].get(int(partition), 0))
    shown = {json.dumps(each, sort_keys=True) for each in ends.values()}
    if len(shown) > 1:
        raise PipelineRefused(
            f"the tables of pipeline {pipeline.name!r} end at different places: "
            f"{', '.join(sorted(shown))}. Resume with one repository, then fill the other"
        )
    return next(iter(ends.values()))


def _check_source(pipeline: Pipeline, root: str, epoch: int, committed: Committed) -> None:
    """Refuses offsets that are not known, or of another topic."""
    if "ends" not in committed.source:
        raise PipelineRefused(
            f"table {root} holds epoch {epoch}, batch {committed.batch} of pipeline "
            f"{pipeline.name!r}, and its log does not say any more where that ended: there is no "
            "end to resume from. Put the checkpoint back from a copy"
        )
    topic = committed.source.get("topic", pipeline.topic)
    if topic != pipeline.topic:
        raise PipelineRefused(
            f"table {root} holds readings of topic {topic!r}, and pipeline {pipeline.name!r} reads "
            f"{pipeline.topic!r}, where its offsets mean nothing. Put the source back, or give the "
            "new topic a pipeline, checkpoint and table of its own"
        )


def compact_tables(pipeline: Pipeline, vacuum_hours: int | None = None) -> dict[str, Compacted]:
    """Merges the small files of a pipeline that does not run.

    With `vacuum_hours`, files of Delta tables that only older versions need are deleted.
    Raises PipelineRefused while a batch is unfinished: it will look at the files as they were.
    """
    with Opened(pipeline) as opened:
        if opened.unfinished():
            raise PipelineRefused(
                f"pipeline {pipeline.name!r} has a batch that is not finished; run it first"
            )
        target = pipeline.settings.compact_target_mb * 1024 * 1024
        found: dict[str, Compacted] = {}
        for root, table in opened.tables.items():
            if table is None:
                found[root] = Compacted(0, 0, 0, 0)
                continue
            done = compact(table, target)
            if vacuum_hours is not None and isinstance(table, DeltaStorage):
                done = done._replace(vacuumed=table.vacuum(vacuum_hours))
            found[root] = done
        return found


async def replay(
    pipeline: Pipeline, client: Client, fix: Fix | None = None, *, limit: int = 100_000
) -> tuple[int, int]:
    """Sends quarantined messages through the pipeline again; returns (sent, left).

    Each goes once, however often this is repeated: it is numbered by its place in quarantine.
    What `fix` gives up on goes to the end of quarantine, where the next replay finds it. That
    happens first: should this one end in the middle, and the next one have another `fix`, then
    whatever the first did not send is still there. Raises FixFailed.
    """
    topic = pipeline.quarantine
    name = await ensure_quarantine(client, pipeline)
    await ensure_topic(client, pipeline.topic)
    reader = await client.reader(topic, name, owner=secrets.token_hex(8))
    planned = await reader.planned() or await reader.plan(limit)
    sent = left = 0
    for partition, start, end in planned:
        good: list[messages.Numbered] = []
        rest: list[messages.Numbered] = []
        async for received in reader.read(partition, start, end):
            body, headers, at = received.body, received.headers, received.at
            message = mended(fix, body, headers, received.key, f"{topic}/{partition}:{at}")
            if message is not None:
                good.append((messages.number(at), message))
            else:
                same = Message(body=body, key=received.key, headers=headers)
                rest.append((messages.number(at), same))
        for target, who, said in (
            (topic, f"{name}/left/{partition}", rest),
            (pipeline.topic, f"{name}/{partition}", good),
        ):
            await Numbered(client, target, partition, publisher=who, epoch=1).publish(said)
        sent += len(good)
        left += len(rest)
        await reader.commit({partition: end})
    return sent, left
