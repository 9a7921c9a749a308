"""A reader that begins where a table ends, when the broker thinks it is farther.

That happens when a table was put back from an older copy. A reader cannot be moved back, so a new
one takes its place; a second one holds everything meanwhile, so that nothing is let go between.
"""

from typing import Any

from penstock.client.reader import Reader
from penstock.pipeline.refusals import PipelineRefused


async def rewind(client: Any, reader: Reader, ends: dict[int, int]) -> Reader:
    """The reader, with its progress at these ends or below; unchanged when it is there already.

    Raises PipelineRefused when the broker no longer holds what the table lacks.
    """
    if not _is_beyond(await reader.progress(), ends):
        return reader
    topic, name, owner = reader.topic, reader.name, reader.owner
    guard: Reader = await client.reader(topic, f"{name}.rewind", owner=owner, start="earliest")
    try:
        held = await guard.progress()
        if _is_beyond(held, ends):
            gone = ", ".join(
                f"{at}:{ends.get(at, 0)} to {at}:{low}"
                for at, low in held.items()
                if low > ends.get(at, 0)
            )
            raise PipelineRefused(
                f"topic {topic!r} no longer holds {gone}, which the tables lack: put a newer copy "
                "of the tables back, or load what is missing from elsewhere and resume"
            )
        await reader.release(force=True)
        found: Reader = await client.reader(topic, name, owner=owner, start="earliest")
    finally:
        await guard.release(force=True)
    return found


def _is_beyond(progress: dict[int, int], ends: dict[int, int]) -> bool:
    """A partition without an end is one that the table knows nothing of."""
    return any(done > ends.get(at, 0) for at, done in progress.items())
