"""The epoch of a pipeline without a past, or with one that was opened anew.

What a pipeline publishes is numbered by source offset, and the broker knows the numbers by pipeline
and epoch. A pipeline that starts over, with a new checkpoint or a source that was made anew, begins
with low numbers again: under an epoch of its earlier life they would pass for repeats, and what it
refused would be nowhere. So would a pipeline whose checkpoint and tables were put back from a copy,
and which knows nothing of the epochs that came after it.
"""

from collections.abc import Mapping
from typing import Final

from penstock.client.client import Client
from penstock.client.identified import unused_epoch
from penstock.pipeline.ledger import Ledger
from penstock.pipeline.settings import Pipeline
from penstock.vocabulary.errors import UnknownTopic

STAGES: Final = ("quarantine", "events", "publish")


def publisher_of(pipeline: Pipeline, stage: str, partition: int) -> str:
    """The name that what comes from a source partition is published under."""
    return f"{pipeline.name}/{stage}/{partition}"


async def choose_epoch(client: Client, pipeline: Pipeline, ledger: Ledger) -> None:
    """Has a ledger without a batch in its epoch begin with one that the broker does not know yet.

    Nobody is asked as long as the pipeline has no topics of its own: then this is its first life.
    """
    last = ledger.last
    if last is not None:
        if last.batch >= 0:
            return
        if last.is_asked and not await _is_read_on(client, pipeline, last.ends()):
            return
    if not await _has_topics(client, pipeline):
        return
    count = (await client.describe_topic(pipeline.topic))["partitions"]
    names = [publisher_of(pipeline, stage, at) for stage in STAGES for at in range(count)]
    epoch = await unused_epoch(client, names, ledger.epoch)
    if last is None:
        ledger.first_epoch = epoch
    else:
        ledger.open_epoch(last.ends(), epoch, is_asked=True)


async def _is_read_on(client: Client, pipeline: Pipeline, ends: Mapping[int, int]) -> bool:
    """True when the reader has planned anything behind these ends, so that it may be published."""
    for each in await client.subscriptions(pipeline.topic):
        if each["subscription"] == pipeline.subscription and "reader" in each:
            found = each["reader"]
            return any(
                offset > ends.get(at, 0)
                for offsets in (found["progress"], found["planned"])
                for at, offset in enumerate(offsets)
            )
    return False


async def _has_topics(client: Client, pipeline: Pipeline) -> bool:
    for topic in (pipeline.quarantine, pipeline.events, pipeline.publish):
        if topic is None:
            continue
        try:
            await client.describe_topic(topic)
        except UnknownTopic:
            continue
        return True
    return False
