"""Given ids after a topic grew: the partition a message had before is asked as well."""

from collections.abc import Sequence

from penstock.batch import Batch
from penstock.batch.encode import key_hashes
from penstock.delivery.dedup import Window, hashes
from penstock.delivery.state import Partition
from penstock.vocabulary.limits import DEDUP_S


def known_elsewhere(
    partition: Partition, batch: bytes, ids: Sequence[str | None], now_wall: int
) -> frozenset[int]:
    """Indexes of the messages whose id was given in the partition of an older map.

    A map counts until what was published under it has left the window.
    """
    limit = now_wall - int(DEDUP_S * 1000)
    older = {growth.partitions for growth in partition.topic.growth or () if growth.at > limit}
    if not older:
        return frozenset()
    keys = Batch(batch, verify=False).key_hashes
    found: set[int] = set()
    for index, id in enumerate(ids):
        if id is None:
            continue
        place = (keys[index] if keys is not None else 0) or key_hashes((id,))[0]
        for home in {place % count for count in older} - {partition.index}:
            seen = partition.topic.partitions[home].seen
            if isinstance(seen, Window) and seen.find(hashes([id]), now_wall)[0] >= 0:
                found.add(index)
    return frozenset(found)
