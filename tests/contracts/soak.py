"""Consumers of a soak: most messages are acked, some fail once, some for good."""

import asyncio
from collections import Counter

import penstock
from penstock.client.client import Client

RETRY = penstock.Retry(first_s=0.02, max_s=0.1, max_attempts=3)


class Soak:
    """What became of `total` messages whose bodies are their numbers."""

    def __init__(self, topic: str, total: int) -> None:
        self.topic = topic
        self.total = total
        self.outcome: Counter[str] = Counter()
        self.seen: Counter[int] = Counter()
        """How often each number was finished."""
        self.done = asyncio.Event()

    async def work(self, client: Client) -> None:
        """One consumer; it ends when everything is finished."""
        async with client.subscribe(self.topic, "work", credit=200, retry=RETRY) as deliveries:
            while not self.done.is_set():
                message = await deliveries.receive(timeout_s=0.2)
                if message is None:
                    continue
                number = int(message.body or b"")
                if number % 50 == 7:
                    message.reject("never")
                    self.outcome["rejected"] += 1
                elif number % 10 == 3 and message.attempt == 1:
                    message.nack(delay_s=0.05)
                    self.outcome["nacked"] += 1
                    continue
                else:
                    message.ack()
                    self.outcome["acked"] += 1
                self.seen[number] += 1
                if self.outcome["acked"] + self.outcome["rejected"] >= self.total:
                    self.done.set()
