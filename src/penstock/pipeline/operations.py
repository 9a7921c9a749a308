"""What an operator does with a pipeline beside running it: look, resume, compact, replay."""

import logging
import secrets
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple, Self

import msgspec
from xxhash import xxh3_128_hexdigest

from penstock.client.client import Client
from penstock.client.identified import Numbered
from penstock.pipeline import counting, messages
from penstock.pipeline.counting import Counts
from penstock.pipeline.flow import ensure_quarantine, ensure_topic
from penstock.pipeline.ledger import Ledger, epoch_in, identity_of, judge, set_aside
from penstock.pipeline.mending import Fix, is_anothers, mended
from penstock.pipeline.refusals import (
    CheckpointAhead,
    CheckpointBehind,
    CheckpointForeign,
    CheckpointMissing,
    PipelineRefused,
)
from penstock.pipeline.repositories.choose import has_table, open_repository
from penstock.pipeline.repositories.compaction import Compacted, compact
from penstock.pipeline.repositories.delta import DeltaStorage
from penstock.pipeline.repositories.port import Committed, TableStorage
from penstock.pipeline.repositories.syncing import WriteFailed
from penstock.pipeline.repositories.viewing import view
from penstock.pipeline.rewinding import Range, missing, shown
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
    """How far a pipeline is, whether it runs or not."""
    return looked(pipeline, None if client is None else await _lag(pipeline, client))


def looked(pipeline: Pipeline, lag: int | None) -> Status:
    """How far a pipeline is, given its lag. Nothing is locked: a run may go on, or start."""
    before = _watched(pipeline)
    views = {
        root: view(url, pipeline.table, pipeline.name)
        for url, root in zip(pipeline.repositories, pipeline.folders(), strict=True)
    }
    after = _watched(pipeline)
    lacking = [lacks(before, after, root, each.batches) for root, each in views.items()]
    last = after.last
    return Status(
        pipeline.name,
        after.epoch,
        -1 if last is None else last.batch,
        not any(lacking),
        {root: each.rows for root, each in views.items()},
        lag,
        counted(pipeline),
    )


def _watched(pipeline: Pipeline) -> Ledger:
    folder = Path(pipeline.checkpoint)
    return Ledger(folder, identity_of(pipeline), is_made=False, is_locked=False)


def lacks(before: Ledger, after: Ledger, table: str, batches: Mapping[int, int]) -> bool:
    """True when a table lacks the newest batch of a ledger that was read before and after it.

    A run may have gone on meanwhile: a table that is ahead of the first, or behind the second, is
    no reason to refuse. Raises CheckpointMissing, CheckpointBehind, CheckpointAhead.
    """
    committed = {epoch: Committed(batch, {}) for epoch, batch in batches.items()}
    try:
        judge(before, table, committed)
    except (CheckpointMissing, CheckpointBehind):
        with suppress(CheckpointAhead):
            judge(after, table, committed)
    last = after.last
    return last is not None and batches.get(last.epoch, -1) < last.batch


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


class Resumed(NamedTuple):
    """Where a pipeline goes on."""

    starts: dict[int, int]
    missing: list[Range]
    """What the tables lack and the broker no longer holds."""


def resume(pipeline: Pipeline) -> dict[int, int]:
    """Opens a new epoch where the tables end; returns where that is. See `resume_behind`."""
    return resume_behind(pipeline, {}).starts


def resume_behind(
    pipeline: Pipeline, held: Mapping[int, int], *, skips_missing: bool = False
) -> Resumed:
    """Opens a new epoch where the tables end.

    `held` is the lowest offset that the broker holds of each partition. With `skips_missing` the
    epoch begins there where that is farther, and what lies between is never stored: the log names
    it.

    Tables that end at different places go on from the lowest of them: those that are ahead know
    the rows they get again. A checkpoint that is damaged or another's is renamed, kept, and named
    in the log. Raises PipelineRefused when the tables hold nothing.
    """
    folder, identity = Path(pipeline.checkpoint), identity_of(pipeline)
    with ExitStack() as stack:
        ledger: Ledger | None = None
        try:
            ledger = Ledger(folder, identity, is_made=False)
            stack.callback(ledger.close)
            epoch = ledger.epoch
        except WriteFailed:
            raise  # the disk is full, and the checkpoint as good as it was
        except (CheckpointForeign, StorageError) as error:
            log.info("%s", error)
            epoch = epoch_in(folder, pipeline.name)
        stored = _stored(pipeline, stack)
        starts = _end(pipeline, stored)
        batches = {  # those that every table holds
            each: min(committed[each].batch for committed in stored.values())
            for each in set.intersection(*map(set, stored.values()))
        }
        source = folder
        if ledger is None:
            source = set_aside(folder, pipeline.name)
            log.warning("the checkpoint %s could not be used; it is kept in %s", folder, source)
            ledger = Ledger(folder, identity)
            stack.callback(ledger.close)
        newest = max(each for committed in stored.values() for each in committed)
        counting.keep(source, folder, pipeline.name, batches)
        gone = missing(starts, held)
        if gone and skips_missing:
            starts |= {at: end for at, _, end in gone}
            log.warning(
                "pipeline %s leaves out %s, which %s no longer holds",
                pipeline.name, shown(gone), pipeline.source,
            )  # fmt: skip
        ledger.open_epoch(starts, max(epoch, newest) + 1)
        return Resumed(starts, gone)


def _stored(pipeline: Pipeline, stack: ExitStack) -> dict[str, dict[int, Committed]]:
    """What each table holds of a pipeline. Raises PipelineRefused when none holds anything."""
    found = {
        root: {} if table is None else table.last(pipeline.name)
        for root, table in opened_tables(pipeline, stack).items()
    }
    if not any(found.values()):
        raise PipelineRefused(
            f"table {', '.join(found)} holds nothing of pipeline {pipeline.name!r}: there is no "
            "end to resume from. Run it with an empty checkpoint instead"
        )
    return found


def _end(pipeline: Pipeline, stored: dict[str, dict[int, Committed]]) -> dict[int, int]:
    """Where each partition goes on: the farthest end over all epochs, the lowest of all tables."""
    ends: dict[str, dict[int, int]] = {}
    for root, committed in stored.items():
        ends[root] = {}
        for epoch, each in sorted(committed.items()):
            _check_source(pipeline, root, epoch, each)
            for partition, end in each.source["ends"].items():
                ends[root][int(partition)] = max(end, ends[root].get(int(partition), 0))
    found = lowest(list(ends.values()))
    for root, own in ends.items():
        if any(end > found[at] for at, end in own.items()):
            log.warning(
                "pipeline %s: table %s is ahead of another one; what lies between comes again, and "
                "it drops the rows it has", pipeline.name, root,
            )  # fmt: skip
    return found


def lowest(ends: list[dict[int, int]]) -> dict[int, int]:
    """The lowest end of each partition; one that a table knows nothing of begins at 0."""
    known = sorted({partition for each in ends for partition in each})
    return {partition: min(each.get(partition, 0) for each in ends) for partition in known}


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
    whatever the first did not send is still there. And it goes under a name that is made of all
    that is left, so that what another `fix` leaves is no repeat. What other pipelines refused is
    theirs. Raises FixFailed.
    """
    topic = pipeline.quarantine
    name = await ensure_quarantine(client, pipeline)
    await ensure_topic(client, pipeline.topic)
    # A quarantine that was made anew begins with low numbers, which are no repeats.
    made = (await client.describe_topic(topic)).get("created_at")
    reader = await client.reader(topic, name, owner=secrets.token_hex(8))
    planned = await reader.planned() or await reader.plan(limit)
    sent = left = 0
    for partition, start, end in planned:
        good: list[messages.Numbered] = []
        rest: list[messages.Numbered] = []
        async for received in reader.read(partition, start, end):
            body, headers, at = received.body, received.headers, received.at
            if is_anothers(headers, pipeline.name):
                continue
            message = mended(fix, body, headers, received.key, f"{topic}/{partition}:{at}")
            if message is not None:
                good.append((messages.number(at), message))
            else:
                same = Message(body=body, key=received.key, headers=headers)
                rest.append((messages.number(at), same))
        for target, who, said in (
            (topic, f"{name}/{made}/left/{partition}/{_digest(rest)}", rest),
            (pipeline.topic, f"{name}/{made}/{partition}", good),
        ):
            await Numbered(client, target, partition, publisher=who, epoch=1).publish(said)
        sent += len(good)
        left += len(rest)
        await reader.commit({partition: end})
    return sent, left


def _digest(left: list[messages.Numbered]) -> str:
    """What tells the messages that a replay leaves from those of another."""
    said = [(number, each.body) for number, each in left]
    return xxh3_128_hexdigest(msgspec.msgpack.encode(said))
