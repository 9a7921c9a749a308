"""Topics of gateway and pipeline: made when they are missing, with what their broker can keep."""

import logging
from typing import Any, Final

from penstock.vocabulary.errors import TopicExists, UnknownTopic

log = logging.getLogger("penstock.pipeline")

REPLAY_S: Final = 72 * 3600.0
"""How long topics keep what was read, for readers that come back."""


async def ensure_topic(client: Any, topic: str, partitions: int = 0, **wanted: Any) -> bool:
    """Creates a topic when it is missing, and tells; what its broker cannot keep is left out.

    `client` is any open client; `wanted` are fields of TopicPolicy; 0 partitions = as many as is
    usual for the URL.
    """
    try:
        await client.describe_topic(topic)
        return False
    except UnknownTopic:
        can = client.capabilities
        kept = {name: value for name, value in wanted.items() if name in can.topic_settings}
        if len(kept) < len(wanted):
            left = ", ".join(name for name in wanted if name not in kept)
            log.info("topic %r: %s: URLs have no setting %s", topic, can.scheme, left)
        try:
            await client.create_topic(topic, partitions or can.partitions_usual, **kept)
        except TopicExists as error:
            log.info("somebody else has just made it: %s", error)
        return True
