import asyncio
from typing import Any

import penstock
from penstock.cli.bench.ours import Ours
from penstock.cli.bench.plan import Plan
from penstock.cli.bench.side import Tally


def test_our_side_publishes_consumes_and_leaves_nothing() -> None:
    async def measure() -> tuple[int, list[bytes], list[dict[str, Any]]]:
        bodies: list[bytes] = []
        tally = Tally(bodies.append)
        tally.wanted = 3
        async with penstock.connect("memory:ours") as beside:
            side = Ours(Plan(server="memory:ours"))
            await side.open()
            await side.publish(b"one")
            await side.publish_many([b"two", b"three"])
            await side.consume(tally)
            about = await side.about()
            assert about["durability"] == "none: in memory"
            await side.close()
            return tally.taken, bodies, await beside.topics()

    assert asyncio.run(measure()) == (3, [b"one", b"two", b"three"], [])
