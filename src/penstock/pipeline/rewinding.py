"""A reader that begins where a table ends, when the broker thinks it is farther.

That happens when a table was put back from an older copy. A reader cannot be moved back, so a new
one takes its place; a second one holds everything meanwhile, so that nothing is let go between.
What the broker let go before that is missing: `held_from` and `missing` tell what.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from penstock.client.client import Client
from penstock.client.reader import Reader
from penstock.pipeline.refusals import SourceDiffers
from penstock.vocabulary.errors import Unsupported

SKIPPING: Final = "`penstock pipeline resume --from-table --skip-missing`"

Range = tuple[int, int, int]
"""Partition, start, end."""


async def held_from(client: Client, topic: str) -> dict[int, int]:
    """The lowest offset that the broker holds of each partition. Raises UnknownTopic, Unsupported.

    It is looked at only: a reader that comes and goes would let go of what nobody else holds.
    """
    ends = (await client.describe_topic(topic)).get("ends")
    if ends is None:
        raise Unsupported(f"the broker of {topic!r} does not tell what it holds of a topic")
    found: dict[int, int] = {}
    for at, end in enumerate(ends):
        oldest = await client.peek(topic, 1, partition=at)
        found[at] = int(oldest[0].offset or 0) if oldest else end
    return found


def missing(ends: Mapping[int, int], held: Mapping[int, int]) -> list[Range]:
    """What lies between the ends of the tables and the lowest offsets that are held."""
    return [(at, ends.get(at, 0), low) for at, low in sorted(held.items()) if low > ends.get(at, 0)]


def shown(ranges: Iterable[Range]) -> str:
    """Ranges for people."""
    return ", ".join(f"{at}:{start} to {at}:{end}" for at, start, end in ranges)


async def rewind(client: Any, reader: Reader, ends: dict[int, int]) -> Reader:
    """The reader, with its progress at these ends or below; unchanged when it is there already.

    Raises SourceDiffers when the broker no longer holds what the table lacks.
    """
    if not missing(ends, await reader.progress()):
        return reader
    topic, name, owner = reader.topic, reader.name, reader.owner
    guard: Reader = await client.reader(topic, f"{name}.rewind", owner=owner, start="earliest")
    try:
        if gone := missing(ends, await guard.progress()):
            raise SourceDiffers(
                f"topic {topic!r} no longer holds {shown(gone)}, which the tables lack: put a "
                "newer copy of the tables back, or load what is missing from elsewhere and resume. "
                f"{SKIPPING} goes on behind it; then it is never stored"
            )
        await reader.release(force=True)
        found: Reader = await client.reader(topic, name, owner=owner, start="earliest")
    finally:
        await guard.release(force=True)
    return found
