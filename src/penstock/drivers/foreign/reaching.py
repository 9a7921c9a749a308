"""The first connection to a foreign broker: tried for as long as the URL says, and no longer."""

import asyncio
from asyncio import get_running_loop
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from penstock.drivers.foreign.address import Address
from penstock.drivers.foreign.carrier import Carrier
from penstock.drivers.reasons import GIVES_UP
from penstock.vocabulary.errors import Unavailable

T = TypeVar("T")

PAUSE_S_FIRST: Final = 0.05
PAUSE_S_MAX: Final = 1.0


async def reach(connect: Callable[[Address], Awaitable[Carrier]], address: Address) -> Carrier:
    """A connection, tried again while the broker is away. Raises Unavailable: it gave up."""
    loop = get_running_loop()
    began = loop.time()
    pause = PAUSE_S_FIRST
    while True:
        try:
            return await connect(address)
        except Unavailable as error:
            tried = loop.time() - began
            if tried >= address.connect_s:
                why = error.text.removeprefix(f"{address.text}: ").rstrip(". ")
                raise Unavailable(
                    f"{address.text} could not be reached in {round(tried, 1):g} s: {why}; start "
                    "the server or correct the URL, whose option connect_s= says how long to try; "
                    f"{GIVES_UP}"
                ) from error
        await asyncio.sleep(min(pause, address.connect_s - tried))
        pause = min(2 * pause, PAUSE_S_MAX)


async def answered(address: Address, work: Awaitable[T]) -> T:
    """What the broker's first answer is needed for. Raises Unavailable when none comes."""
    try:
        async with asyncio.timeout(address.connect_s) as limit:
            return await work
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise silent(address, address.connect_s) from error


def silent(address: Address, seconds: float) -> Unavailable:
    """A port that takes connections and says nothing."""
    return Unavailable(
        f"{address.text}: nothing came back for {seconds:g} s (is it a server of this kind?)"
    )
