"""Push: calls handlers with messages until told to stop, then drains.

Each handler has one consumer and as many workers as its concurrency. A drain takes nothing new,
lets running handlers finish, and hands back what was not started without counting an attempt.
"""

import asyncio
import logging
from asyncio import AbstractEventLoop, CancelledError, Task
from collections.abc import Callable
from typing import Any, Final

from penstock.client import handlers
from penstock.client.deliveries import Deliveries
from penstock.client.handlers import Handler
from penstock.client.keyed import DeliveriesByKey
from penstock.client.received import ReceivedMessage
from penstock.client.workers import Workers
from penstock.vocabulary.errors import BodyDoesNotFit, PenstockError

log = logging.getLogger("penstock.client")

DRAIN_S_DEFAULT: Final = 30.0


class Service:
    """Runs handlers on the running loop. `serve` once."""

    def __init__(self, subscribe: Callable[[Handler], Deliveries], loop: AbstractEventLoop) -> None:
        self._subscribe = subscribe
        self._loop = loop
        self._runners: list[Runner] = []
        self._is_stopping = False
        self._ended: asyncio.Future[None] = loop.create_future()

    async def serve(self, registered: list[Handler], drain_s: float) -> None:
        """Serves until `stop`, or until a subscription fails; raises that error after the drain."""
        try:
            for handler in registered:
                await self.add(handler)
            await self._ended
        except CancelledError:
            drain_s = 0.0
            raise
        finally:
            await self._drain(drain_s)

    async def add(self, handler: Handler) -> None:
        """Starts one more handler."""
        runner = Runner(handler, self._subscribe(handler), self._loop, self._on_error)
        self._runners.append(runner)
        await runner.start()

    def stop(self) -> None:
        """Begins the drain; a second call ends it at once. On the loop's thread."""
        if self._is_stopping:
            for runner in self._runners:
                runner.cancel()
        self._is_stopping = True
        if not self._ended.done():
            self._ended.set_result(None)

    def _on_error(self, error: BaseException) -> None:
        if not self._ended.done():
            self._ended.set_exception(error)

    async def _drain(self, drain_s: float) -> None:
        self._is_stopping = True
        for runner in self._runners:
            runner.stop()
        await asyncio.gather(*(runner.drain(drain_s) for runner in self._runners))


class Runner:
    """One handler, its consumer and its workers."""

    def __init__(
        self, handler: Handler, deliveries: Deliveries, loop: AbstractEventLoop,
        on_error: Callable[[BaseException], None],
    ) -> None:  # fmt: skip
        self._handler = handler
        self._deliveries = deliveries
        self._on_error = on_error
        self._tasks: list[Task[None]] = []
        self._threads: Workers | None = None
        if not handler.is_async:
            self._threads = Workers(loop, handler.concurrency, f"penstock-{handler.name}")

    async def start(self) -> None:
        """Attaches and begins to take messages."""
        await self._deliveries.open()
        keyed = self._deliveries if isinstance(self._deliveries, DeliveriesByKey) else None
        for number in range(self._handler.concurrency):
            work = self._work() if keyed is None else self._work_by_key(keyed)
            task = asyncio.create_task(work, name=f"{self._handler.name}-{number}")
            self._tasks.append(task)

    def stop(self) -> None:
        """Takes nothing new."""
        self._deliveries.stop()

    def cancel(self) -> None:
        """Interrupts the handlers that run."""
        for task in self._tasks:
            task.cancel()

    async def drain(self, drain_s: float) -> None:
        """Waits for running handlers, at most so long; then hands back what is left."""
        if self._tasks:
            _, running = await asyncio.wait(self._tasks, timeout=drain_s)
            if running:
                log.warning(
                    "handler %s: %d message(s) not finished in %s s are handed back",
                    self._handler.name, len(running), drain_s,
                )  # fmt: skip
                self.cancel()
                await asyncio.wait(self._tasks)
        if self._threads is not None:
            self._threads.close()
        try:
            await self._deliveries.close()
        except PenstockError as error:
            log.warning("handler %s: %s", self._handler.name, error)

    async def _work(self) -> None:
        try:
            while (message := await self._deliveries.receive()) is not None:
                await self._handle(message)
        except Exception as error:  # noqa: BLE001 - the root of a task: run() raises it
            self._on_error(error)

    async def _work_by_key(self, deliveries: DeliveriesByKey) -> None:
        """As `_work`; the next message of a key is for whoever asks once this one is finished."""
        try:
            while (message := await deliveries.receive()) is not None:
                await self._handle(message)
                deliveries.finish(message)
        except Exception as error:  # noqa: BLE001 - as above
            self._on_error(error)

    async def _handle(self, message: ReceivedMessage) -> None:
        handler = self._handler
        try:
            arguments = handler.arguments(message)
        except BodyDoesNotFit as error:
            handlers.misfit(handler, message, error)
            return
        limit = asyncio.timeout(handler.timeout_s)
        try:
            if self._threads is None:
                async with limit:
                    outcome = await handler.function(*arguments)
            else:
                outcome = await self._in_thread(message, arguments, limit)
        except Exception as error:  # noqa: BLE001 - a handler may raise anything
            if limit.expired():
                handlers.time_out(handler, message)
            else:
                handlers.fail(handler, message, error)
        except CancelledError:
            if asyncio.current_task().cancelling():  # type: ignore[union-attr]
                raise
            handlers.fail(handler, message, RuntimeError("the handler was cancelled"))
        else:
            handlers.finish(handler, message, outcome)

    async def _in_thread(
        self, message: ReceivedMessage, arguments: list[Any], limit: asyncio.Timeout
    ) -> Any:
        assert self._threads is not None
        answer = self._threads.call(self._handler.function, *arguments)
        try:
            async with limit:
                return await asyncio.shield(answer)
        except TimeoutError:
            if not limit.expired():
                raise
            # A thread cannot be interrupted: the message goes back now, its place stays taken.
            handlers.time_out(self._handler, message)
            await asyncio.wait([answer])
            answer.exception()  # looked at, so that nobody complains that it was not
            return None
