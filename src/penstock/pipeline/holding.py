"""Whether a broker still holds what a pipeline reads next, and whose reader it reads with.

A reader belongs to one pipeline: two of them would each get a part of the messages. Its owner says
which one that is, so that the second is refused by name before anything moves.
"""

import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from xxhash import xxh3_64_hexdigest

from penstock.client.client import Client
from penstock.client.reader import Reader
from penstock.pipeline.refusals import ReaderTaken, SourceDiffers
from penstock.pipeline.settings import Pipeline

MARK: Final = "pipeline"
"""The first word of an owner that is a run of a pipeline. Names have no spaces."""
NAME_BYTES_MAX: Final = 90
"""Of a name in an owner; longer ones are cut."""

Range = tuple[int, int, int]
"""Partition, start, end."""


class Holder(NamedTuple):
    """The pipeline whose run has a reader."""

    name: str
    place: str
    """Tells apart pipelines of one name by where their tables lie."""


def holder_of(pipeline: Pipeline) -> Holder:
    """What a pipeline is called in the owner of its reader."""
    name = pipeline.name.encode()[:NAME_BYTES_MAX].decode(errors="ignore")
    folders = "\n".join(str(Path(each).resolve()) for each in pipeline.folders())
    return Holder(name, xxh3_64_hexdigest(folders.encode())[:8])


def new_owner(pipeline: Pipeline) -> str:
    """A token for one run."""
    return " ".join((MARK, *holder_of(pipeline), secrets.token_hex(6)))


def holder_in(owner: str) -> Holder | None:
    """The pipeline an owner is a run of; None when it is something else's."""
    match owner.split(" "):
        case [mark, name, place, _] if mark == MARK:
            return Holder(name, place)
        case _:
            return None


async def open_reader(client: Client, pipeline: Pipeline, owner: str, *, is_new: bool) -> Reader:
    """The reader of a pipeline, which fences an older run of it. `is_new`: it has stored nothing.

    Raises ReaderTaken when it is another pipeline's.
    """
    for each in await client.subscriptions(pipeline.topic):
        if each["subscription"] == pipeline.subscription and "reader" in each:
            _check_holder(pipeline, each["reader"], is_new=is_new)
    return await client.reader(pipeline.topic, pipeline.subscription, owner=owner)


def _check_holder(pipeline: Pipeline, reader: Mapping[str, object], *, is_new: bool) -> None:
    found, own = holder_in(str(reader["owner"])), holder_of(pipeline)
    if found is None or found == own:
        return
    whose = f"pipeline {found.name!r}"
    if found.name == own.name:
        progress = reader["progress"]
        if not is_new or not isinstance(progress, list) or not any(progress):
            return  # its tables were moved, or nothing was ever read
        whose += ", which stores into another table"
    raise ReaderTaken(
        f"subscription {pipeline.subscription!r} of {pipeline.source} is the reader of {whose}: "
        f"two pipelines would each get a part. Give [pipeline.{pipeline.name}] a subscription of "
        "its own, or delete that one if it is not used any more"
    )


async def check_planned(
    client: Client, reader: Reader, pipeline: Pipeline, ranges: Iterable[Range]
) -> None:
    """Raises SourceDiffers unless each range was reported, or is held for the reader."""
    progress = await reader.progress()
    planned = {at: end for at, _, end in await reader.planned()}
    held = await ends_of(client, pipeline)
    for at, start, end in ranges:
        low = progress.get(at, 0)
        has = end if held is None else held.get(at, 0)
        if has < end or (low < end and planned.get(at, 0) < end):
            raise differs(pipeline, at, (start, end), (low, max(low, min(has, planned.get(at, 0)))))


def check_reached(
    pipeline: Pipeline, known: Mapping[int, int], progress: Mapping[int, int]
) -> None:
    """Raises SourceDiffers when the reader is beyond what is stored: some would never be read."""
    for at, end in known.items():
        if (low := progress.get(at, 0)) > end:
            raise differs(pipeline, at, (end, low), (low, low))


async def check_ends(client: Client, pipeline: Pipeline, ends: Mapping[int, int]) -> None:
    """Raises SourceDiffers when the topic does not reach as far as the tables do."""
    held = await ends_of(client, pipeline)
    for at, end in ends.items():
        if held is not None and held.get(at, 0) < end:
            raise differs(pipeline, at, (end, end), (0, held.get(at, 0)))


async def ends_of(client: Client, pipeline: Pipeline) -> dict[int, int] | None:
    """Where each partition of the topic ends; None on a broker that does not tell."""
    found = (await client.describe_topic(pipeline.topic)).get("ends")
    return None if found is None else dict(enumerate(found))


def differs(
    pipeline: Pipeline, partition: int, need: tuple[int, int], held: tuple[int, int]
) -> SourceDiffers:
    """The refusal of a topic that lacks what comes next."""
    at, low = partition, held[0]
    gone = ""
    if low > need[0]:
        gone = f" What the topic no longer holds of {at}:{need[0]} to {at}:{low} is lost, and "
        gone += "`--skip-missing` goes on behind it."
    return SourceDiffers(
        f"pipeline {pipeline.name!r} goes on at {at}:{need[0]} up to {at}:{need[1]}, and "
        f"{pipeline.source} holds {at}:{low} to {at}:{held[1]} for it: the topic was "
        "trimmed or deleted, or its reader moved. Put it back. If it is the same topic, go on with "
        "`penstock pipeline resume --from-table`; if it was made anew, start with another "
        f"checkpoint and table.{gone}"
    )
