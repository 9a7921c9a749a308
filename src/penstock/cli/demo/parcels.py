"""Each order becomes one parcel: taken from one topic and put into another as one transaction."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import msgspec

PARCELS: Final = "parcels"
SHIPPING: Final = "shipping"
SHIPPING_S: Final = 0.01
"""Shipping takes longer than ordering, so some orders are always on the way."""
LOOK_MAX: Final = 100_000
PATIENCE_S: Final = 10.0
"""How long confirmed orders are waited for; they may be slow to come on a busy machine."""


class Shipped(msgspec.Struct):
    """What became of the orders, compared with the units that were confirmed before the kill."""

    before: int
    """Parcels there were when the store was opened again."""
    after: int
    """Parcels there are now that the rest is shipped."""
    lost: set[str]
    """Orders of confirmed units without a parcel."""
    twice: set[str]
    """Orders with more than one parcel."""
    missing: set[str]
    """Confirmed orders without a parcel in the end."""

    @property
    def is_whole(self) -> bool:
        """True when each order has exactly one parcel."""
        return not (self.lost or self.twice or self.missing)


async def ship(
    client: Any,
    orders: str,
    tell: Callable[[str], None],
    timeout_s: float | None = None,
    pause_s: float = 0.0,
) -> None:
    """Makes a parcel of each order, until killed or until `timeout_s` passes without one."""
    async with client.subscribe(orders, SHIPPING) as deliveries:
        while message := await deliveries.receive(timeout_s=timeout_s):
            async with client.transaction() as unit:
                unit.publish(PARCELS, json={"order": message.id})
                unit.ack(message)
            tell(message.id)
            await asyncio.sleep(pause_s)


async def ship_the_rest(
    client: Any, orders: str, confirmed: set[str], shipped: set[str], quiet_s: float
) -> Shipped:
    """Goes on where the killed process was, and holds the parcels against the promises."""
    before = await _parcels(client)
    left = confirmed - before.keys()
    ends = time.monotonic() + PATIENCE_S
    await ship(client, orders, left.discard, quiet_s)
    while left and time.monotonic() < ends:
        await ship(client, orders, left.discard, quiet_s)
    after = await _parcels(client)
    return Shipped(
        before=before.total(),
        after=after.total(),
        lost=shipped - before.keys(),
        twice={name for name, count in after.items() if count > 1},
        missing=confirmed - after.keys(),
    )


async def _parcels(client: Any) -> Counter[str]:
    """How often each order is among the parcels."""
    found = await client.peek(PARCELS, LOOK_MAX)
    return Counter(message.json()["order"] for message in found)
