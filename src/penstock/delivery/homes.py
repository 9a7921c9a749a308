"""Given ids after a topic grew: the partition a message had before is asked as well."""

from collections.abc import Sequence
from itertools import count as counting

from penstock.batch import Batch
from penstock.batch.encode import key_hashes
from penstock.delivery.dedup import Window, hashes
from penstock.delivery.growth import earlier_homes, growths
from penstock.delivery.state import Partition
from penstock.vocabulary.limits import DEDUP_S
from penstock.vocabulary.records import Published

Home = tuple[Partition, int]
"""A partition, and where the messages of the older map end in it."""


def known_elsewhere(
    partition: Partition, batch: bytes, ids: Sequence[str | None], now_wall: int
) -> frozenset[int]:
    """Indexes of the messages whose id was given in the partition of an older map.

    A map counts until what was published under it has left the window.
    """
    limit = now_wall - int(DEDUP_S * 1000)
    older = {growth.partitions for growth in growths(partition.topic) if growth.at > limit}
    if not older:
        return frozenset()
    keys = Batch(batch, verify=False).key_hashes
    found: set[int] = set()
    for index, id in enumerate(ids):
        if id is None:
            continue
        place = _place(keys, index, id)
        for home in {place % count for count in older} - {partition.index}:
            seen = partition.topic.map[home].seen
            if isinstance(seen, Window) and seen.find(hashes([id]), now_wall)[0] >= 0:
                found.add(index)
    return frozenset(found)


def homes_before(
    partition: Partition, record: Published, ids: Sequence[str | None]
) -> dict[int, list[Home]]:
    """The partitions that the messages a record stores had in older maps, by their offsets."""
    topic, keys = partition.topic, Batch(record.batch, verify=False).key_hashes
    kept = record.kept if record.kept is not None else range(record.count)
    found: dict[int, list[Home]] = {}
    for offset, index in zip(counting(record.base), kept, strict=False):
        id = ids[index]
        if id is not None:
            homes = earlier_homes(topic, partition.index, _place(keys, index, id))
            found[offset] = [(topic.map[home], end) for home, end in homes]
    return found


def _place(keys: memoryview | None, index: int, id: str) -> int:
    """The hash by which a message finds its partition: that of its key, else of its id."""
    return (keys[index] if keys is not None else 0) or key_hashes((id,))[0]
