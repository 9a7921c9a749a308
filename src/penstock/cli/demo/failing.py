"""A handler that fails, the dead letter it leaves, and the way back."""

import asyncio
import time
from typing import Any, Final

from penstock.vocabulary.policy import Retry

TOPIC: Final = "payments"
SUBSCRIPTION: Final = "bank"
ATTEMPTS: Final = 3
REASON: Final = "the bank does not know this account"
PATIENCE_S: Final = 30.0


async def fail(client: Any) -> tuple[int, list[Any]]:
    """Publishes a payment that cannot succeed; returns the attempts made and the dead letters."""
    retry = Retry(first_s=0.05, max_s=0.1, max_attempts=ATTEMPTS)
    await client.create_subscription(TOPIC, SUBSCRIPTION, retry=retry)
    await client.publish(TOPIC, json={"account": "?", "amount": 5}, id="payment-1")
    attempts = 0
    letters: list[Any] = []
    ends = time.monotonic() + PATIENCE_S
    async with client.subscribe(TOPIC, SUBSCRIPTION) as deliveries:
        while not letters and time.monotonic() < ends:
            message = await deliveries.receive(timeout_s=0.05)
            if message is not None:
                attempts += 1
                message.nack(reason=REASON)
            elif attempts >= ATTEMPTS:
                letters = list(await client.dead_letters(TOPIC, SUBSCRIPTION))
    return attempts, letters


async def redrive(client: Any) -> tuple[int, Any]:
    """Sends the dead letter back, and handles it this time."""
    count = await client.redrive(TOPIC, SUBSCRIPTION)
    async with client.subscribe(TOPIC, SUBSCRIPTION) as deliveries:
        message = await asyncio.wait_for(deliveries.receive(timeout_s=PATIENCE_S), PATIENCE_S + 1)
        if message is not None:
            message.ack()
    return int(count), message
