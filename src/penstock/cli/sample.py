"""What `penstock top` shows: two looks at a broker, and what happened between them."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

PARTITIONS_MAX: Final = 16
"""The oldest message is looked for in topics of at most so many partitions."""
SORTS: Final = ("traffic", "backlog", "oldest", "name")


class Look(msgspec.Struct, frozen=True):
    """A broker at one moment."""

    at: float
    stats: dict[str, Any]
    topics: dict[str, dict[str, Any]]
    subscriptions: dict[tuple[str, str], dict[str, Any]]


class TopicRow(msgspec.Struct):
    """One topic: how fast it moves and how much waits."""

    topic: str
    in_s: float
    out_s: float
    backlog: int
    """Unacked messages of the subscription that has most of them."""
    messages: int
    bytes: int
    consumers: int
    oldest_s: float | None = None
    """Age of the oldest unacked message; None when there is none, or nobody looked."""


class View(msgspec.Struct):
    """Everything one screen shows."""

    at: float
    health: str
    reasons: list[str]
    topics: int
    subscriptions: int
    consumers: int
    in_s: float
    out_s: float
    messages_held: int
    disk_bytes: int
    rows: list[TopicRow]


async def look(client: Any, at: float) -> Look:
    """Asks the broker."""
    stats = await client.stats()
    topics = await client.topics()
    subscriptions = await client.subscriptions()
    return Look(
        at,
        stats,
        {row["topic"]: row for row in topics},
        {(row["topic"], row["subscription"]): row for row in subscriptions},
    )


def view(before: Look, now: Look) -> View:
    """What happened between two looks, topic by topic."""
    elapsed = max(now.at - before.at, 1e-9)
    rows = [_row(name, before, now, elapsed) for name in now.topics]
    return View(
        at=now.at,
        health=now.stats["health"]["status"],
        reasons=list(now.stats["health"]["reasons"]),
        topics=len(now.topics),
        subscriptions=now.stats["subscriptions"],
        consumers=now.stats["consumers"],
        in_s=sum(row.in_s for row in rows),
        out_s=sum(row.out_s for row in rows),
        messages_held=now.stats["messages_held"],
        disk_bytes=now.stats["disk_bytes"],
        rows=rows,
    )


def _row(name: str, before: Look, now: Look, elapsed: float) -> TopicRow:
    topic = now.topics[name]
    published = before.topics.get(name, {}).get("published", 0)
    mine = own(now, name)
    acked = sum(row["acked"] for row in mine)
    acked_before = sum(row["acked"] for row in own(before, name))
    return TopicRow(
        name,
        in_s=max(0, topic["published"] - published) / elapsed,
        out_s=max(0, acked - acked_before) / elapsed,
        backlog=max((backlog(row) for row in mine), default=0),
        messages=topic["messages"],
        bytes=topic["bytes"],
        consumers=sum(len(row["consumers"]) for row in mine),
    )


def own(found: Look, topic: str) -> list[dict[str, Any]]:
    """The subscriptions of a topic that hold messages themselves: no sums of several."""
    return [
        row
        for (name, _), row in found.subscriptions.items()
        if name == topic and "members" not in row and "topics" not in row
    ]


def backlog(row: dict[str, Any]) -> int:
    """Messages a subscription has not acked."""
    return int(row["waiting"] + row["leased"] + row["delayed"])


def ordered(rows: Sequence[TopicRow], sort: str) -> list[TopicRow]:
    """The rows worth most attention first."""
    keys: dict[str, Any] = {
        "traffic": lambda row: (-(row.in_s + row.out_s), -row.backlog, row.topic),
        "backlog": lambda row: (-row.backlog, row.topic),
        "oldest": lambda row: (-(row.oldest_s or 0), row.topic),
        "name": lambda row: row.topic,
    }
    return sorted(rows, key=keys[sort])


async def find_oldest(client: Any, now: Look, rows: Sequence[TopicRow]) -> None:
    """Adds the age of the oldest unacked message to rows that are shown."""
    for row in rows:
        topic = now.topics[row.topic]
        if not row.backlog or topic["partitions"] > PARTITIONS_MAX:
            continue
        times: list[float] = []
        for partition in range(topic["partitions"]):
            floors = [
                each["oldest"][partition]
                for each in own(now, row.topic)
                if backlog(each) and partition < len(each.get("oldest", ()))
            ]
            if floors:
                found = await client.peek(row.topic, 1, partition=partition, after=min(floors))
                times += [message.published_at for message in found]
        if times:
            row.oldest_s = max(0.0, now.at - min(times))
