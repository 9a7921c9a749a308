import asyncio
from pathlib import Path
from typing import Any

from penstock.cli.bench.broker import BUSY, opened
from penstock.cli.bench.plan import TOPIC, Plan


async def _look(plan: Plan, **settings: Any) -> tuple[Any, Any]:
    async with opened(plan, **settings) as client:
        receipt = await client.publish(TOPIC, b"x")
        return receipt, await client.stats()


def test_the_topic_has_the_durability_of_the_plan(tmp_path: Path) -> None:
    for level in ("synced", "written"):
        plan = Plan(folder=str(tmp_path / level), durability=level)
        assert asyncio.run(_look(plan))[0].durability == level


def test_memory_needs_no_folder() -> None:
    assert asyncio.run(_look(Plan()))[0].durability == "memory"


def test_a_broker_with_tiny_segments_is_shared_with_the_client(tmp_path: Path) -> None:
    plan = Plan(folder=str(tmp_path / "store"))
    _, stats = asyncio.run(_look(plan, settings=BUSY))
    assert stats["disk_bytes"] <= 3 * BUSY.segment_bytes_max
    asyncio.run(_look(plan))  # closed in good order: it can be opened again
