"""The process that is killed: it publishes and consumes, and tells what was confirmed.

`confirmed ID` (after the receipt) and `acked ID` (after the acknowledgement is on disk) are the
broker's promises. `acking ID` comes before: until it is on disk, an ack may or may not hold.
`shipped ID` comes after a transaction: the order is acked and its parcel published.
"""

import asyncio
import sys
from typing import Any, Final

from penstock.cli.demo.parcels import SHIPPING, SHIPPING_S, ship

TOPIC: Final = "orders"
BILLING, AUDIT = "billing", "audit"
PAUSE_S: Final = 0.001
BILLING_S: Final = 0.004
"""Billing an order takes longer than placing one, so some are always unfinished."""
ACK_EVERY: Final = 10


async def work(folder: str) -> None:
    """Publishes and consumes until somebody kills this process."""
    import penstock

    async with penstock.connect(f"file:{folder}") as client:
        await client.create_subscription(TOPIC, BILLING)
        await client.create_subscription(TOPIC, AUDIT)
        await client.create_subscription(TOPIC, SHIPPING)
        shipping = ship(client, TOPIC, _shipped, pause_s=SHIPPING_S)
        await asyncio.gather(_publish(client), _consume(client), shipping)


async def _publish(client: Any) -> None:
    number = 0
    while True:
        number += 1
        order = {"order": number, "amount": number % 90 + 10}
        receipt = await client.publish(TOPIC, json=order, id=f"order-{number}")
        print("confirmed", receipt.id, flush=True)
        await asyncio.sleep(PAUSE_S)


def _shipped(name: str) -> None:
    print("shipped", name, flush=True)


async def _consume(client: Any) -> None:
    async with client.subscribe(TOPIC, BILLING) as deliveries:
        acked: list[str] = []
        async for message in deliveries:
            await asyncio.sleep(BILLING_S)
            acked.append(message.id)
            print("acking", acked[-1], flush=True)
            message.ack()
            if len(acked) == ACK_EVERY:
                await deliveries.flush()
                for name in acked:
                    print("acked", name, flush=True)
                acked.clear()


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1]))
