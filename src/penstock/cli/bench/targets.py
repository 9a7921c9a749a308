"""The rows of the suite about delivery: kinds, priorities, given ids, transactions, readers."""

from typing import Final

from penstock.cli.bench.figure import Figure
from penstock.cli.bench.row import Judge, Limits, Result, Row, nothing_lost
from penstock.cli.output import number, size

ID_BYTES_MAX: Final = 64.0
"""Memory an id may take: 64 MB for a million."""


def rate(row: str, target: float | None) -> Judge:
    """Judges messages a second, and that each of them came once."""

    def judge(found: Result, _limits: Limits) -> list[Figure]:
        return [
            Figure(
                row=row,
                value=found["messages_per_s"],
                unit="/s",
                target=target,
                note=f"{number(found['messages'])} messages",
            ),
            nothing_lost(f"{row}: lost, repeated", found["lost"] + found["repeated"]),
        ]

    return judge


judge_shared: Final = rate("shared, batches of 1,000", None)
judge_key_shared: Final = rate("key_shared, 4 consumers, 100,000 keys", 400_000)
judge_multicast: Final = rate("multicast to 4, deliveries", 1_000_000)
judge_priorities: Final = rate("priorities 0 to 9", 300_000)
judge_reader: Final = rate("reader, from disk", 3_000_000)
_judge_ids: Final = rate("given ids, batches of 1,000", 400_000)


def judge_ids(found: Result, limits: Limits) -> list[Figure]:
    """Publishing with given ids, and the memory of the window that knows them."""
    count = found["ids"]
    return [
        *_judge_ids(found, limits),
        Figure(
            row=f"given ids: memory of {number(count)}",
            value=found["id_bytes"],
            unit="bytes",
            target=ID_BYTES_MAX * count,
            is_at_most=True,
            note=f"{found['id_bytes'] / count:.1f} bytes each, {size(found['peak_bytes'])} at most",
        ),
    ]


def judge_transactions(found: Result, _limits: Limits) -> list[Figure]:
    """Units of one ack and one publish beside plain publishes."""
    row = "transactions of 1 ack + 1 publish"
    return [
        Figure(
            row=f"{row}, share of plain publishes",
            value=found["share"],
            unit="share",
            target=0.5,
            note=f"{number(round(found['messages_per_s']))}/s of "
            f"{number(round(found['plain_messages_per_s']))}/s",
        ),
        nothing_lost(f"{row}: lost, repeated", found["lost"] + found["repeated"]),
    ]


BATCHES: Final = {"batch": 1_000}
ROWS: Final = (
    Row("shared", "shared", BATCHES, judge_shared),
    Row("key-shared", "key-shared", BATCHES, judge_key_shared),
    Row("multicast", "multicast", BATCHES, judge_multicast),
    Row("priorities", "priorities", BATCHES, judge_priorities),
    Row("ids", "ids", BATCHES, judge_ids),
    Row("transactions", "transactions", {"callers": 100}, judge_transactions),
    Row("reader", "reader", BATCHES, judge_reader),
)
