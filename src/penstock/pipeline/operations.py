"""What an operator does with a pipeline beside running it: look, resume, compact, replay."""

import json
import secrets
from pathlib import Path
from typing import Self

import msgspec

from penstock.client.client import Client
from penstock.client.identified import Numbered
from penstock.pipeline import messages
from penstock.pipeline.flow import COUNTS, Counts, ensure_quarantine, ensure_topic
from penstock.pipeline.ledger import Identity, Ledger, judge
from penstock.pipeline.mending import Fix, mended
from penstock.pipeline.refusals import PipelineRefused
from penstock.pipeline.repositories.choose import open_repository
from penstock.pipeline.repositories.compaction import Compacted, compact
from penstock.pipeline.repositories.delta import DeltaStorage
from penstock.pipeline.repositories.port import TableStorage
from penstock.pipeline.settings import Pipeline
from penstock.vocabulary.errors import UnknownTopic
from penstock.vocabulary.message import Message


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


class Opened:
    """The checkpoint and the tables of a pipeline that does not run. A context manager."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.tables: dict[str, TableStorage] = {}
        folders = pipeline.folders()
        identity = Identity(pipeline.name, pipeline.source, folders)
        self.ledger = Ledger(Path(pipeline.checkpoint), identity)
        try:
            for url, folder in zip(pipeline.repositories, folders, strict=True):
                self.tables[folder] = open_repository(url, pipeline.table, pipeline.dataset)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of everything."""
        for table in self.tables.values():
            table.close()
        self.ledger.close()

    def unfinished(self) -> list[str]:
        """The tables that lack the newest batch. Raises a refusal where they do not fit."""
        return [
            root
            for root, table in self.tables.items()
            if judge(self.ledger, root, table.last(self.pipeline.name))
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
                root: sum(each.rows for each in table.files())
                for root, table in opened.tables.items()
            },
            lag,
            counted(pipeline),
        )


def counted(pipeline: Pipeline) -> Counts:
    """The sum over all batches; one that was done twice counts once."""
    total = Counts()
    seen: dict[tuple[str, int], Counts] = {}
    try:
        text = (Path(pipeline.checkpoint) / COUNTS).read_text(encoding="utf-8")
    except FileNotFoundError:
        return total
    for line in text.splitlines():
        try:
            found = json.loads(line)
        except ValueError:
            continue  # the line that was being written when the process ended
        key = (found.pop("application"), found.pop("batch"))
        seen[key] = msgspec.convert(found, Counts)
    for counts in seen.values():
        total.add(counts)
    return total


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

    Raises PipelineRefused when tables have ended at different places, or hold nothing.
    """
    with Opened(pipeline) as opened:
        ends: set[str] = set()
        epoch = opened.ledger.epoch
        for table in opened.tables.values():
            committed = table.last(pipeline.name)
            if not committed:
                raise PipelineRefused(
                    f"table {table.root} holds nothing of pipeline {pipeline.name!r}: there is no "
                    "end to resume from. Run it with an empty checkpoint instead"
                )
            newest = max(committed)
            epoch = max(epoch, newest)
            found = _all_ends(table, pipeline.name)
            ends.add(json.dumps(found, sort_keys=True))
        if len(ends) > 1:
            raise PipelineRefused(
                f"the tables of pipeline {pipeline.name!r} end at different places: "
                f"{', '.join(sorted(ends))}. Resume with one repository, then fill the other"
            )
        start = {int(at): end for at, end in json.loads(ends.pop()).items()}
        opened.ledger.open_epoch(start, epoch + 1)
        return start


def _all_ends(table: TableStorage, pipeline: str) -> dict[str, int]:
    """The farthest end of each partition over all epochs."""
    found: dict[str, int] = {}
    for committed in table.last(pipeline).values():
        for partition, end in committed.source.get("ends", {}).items():
            found[partition] = max(end, found.get(partition, 0))
    return found


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
