"""A connection for scripts somebody waits for, past what the SDK does for any command.

The SDK's client takes a connection from its pool for each command, looks whether it is still good,
watches over each half of the command with a task of its own, and gives it back. Here a command is
written at once, one task reads the answers in their order, and one timer watches over all of them.
While there is no connection nothing is sent this way, and one is made in the background.
"""

import asyncio
from asyncio import AbstractEventLoop, Future, Task, TimerHandle
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from penstock.drivers.foreign.carrier import missing

try:
    from hiredis import pack_command
    from redis import exceptions as problems
except ImportError as error:  # pragma: no cover - the extra is installed where tests run
    raise missing("redis", "redis") from error

Told = Callable[[Any], None]
"""Gets the answer, or the exception the SDK would raise."""


class Quick:
    """One connection of the SDK, made by `make`, without a time limit of its own."""

    def __init__(self, make: Callable[[], Any], answer_s: float, loop: AbstractEventLoop) -> None:
        self._make = make
        self._answer_s = answer_s
        self._loop = loop
        self._connection: Any = None
        self._task: Task[None] | None = None
        self._waiting: deque[tuple[float, Told]] = deque()
        """Until when an answer may come, and whom it is for; oldest first."""
        self._timer: TimerHandle | None = None
        self._is_closed = False

    def send(self, command: tuple[Any, ...], told: Told) -> bool:
        """Sends a command; `told` is called once, on the loop, later. False: it is not sent."""
        if self._connection is None:
            if self._task is None and not self._is_closed:
                self._task = self._loop.create_task(self._run(), name="penstock-redis-quick")
            return False
        self._waiting.append((self._loop.time() + self._answer_s, told))
        self._connection._writer.write(pack_command(command))  # noqa: SLF001 - has no other name
        if self._timer is None:
            self._timer = self._loop.call_later(self._answer_s, self._look)
        return True

    def ask(self, command: tuple[Any, ...]) -> Future[Any] | None:
        """Sends a command; the future gets what `told` would. None: it is not sent."""
        future: Future[Any] = self._loop.create_future()

        def told(answer: Any) -> None:
            if not future.done():
                future.set_result(answer)

        return future if self.send(command, told) else None

    async def close(self) -> None:
        """Ends the connection. Never raises."""
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # -- the task --------------------------------------------------------------------------------

    async def _run(self) -> None:
        connection = self._make()
        why: Exception = problems.ConnectionError(
            f"the connection was closed, or nothing came for {self._answer_s:g} s"
        )
        try:
            await connection.connect()
            self._connection = connection
            await self._read(connection)
        except (problems.RedisError, OSError) as error:
            why = error
        finally:
            self._connection = self._task = None
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            while self._waiting:
                self._waiting.popleft()[1](why)
            with suppress(Exception):
                await connection.disconnect(nowait=True)

    async def _read(self, connection: Any) -> None:
        while True:
            try:
                answer = await connection.read_response()
            except problems.ResponseError as error:
                answer = error
            if not self._waiting:
                raise problems.ConnectionError("an answer nobody asked for")
            self._waiting.popleft()[1](answer)

    def _look(self) -> None:
        """Ends a connection whose oldest command has waited too long."""
        self._timer = None
        if not self._waiting:
            return
        if self._waiting[0][0] > self._loop.time():
            self._timer = self._loop.call_at(self._waiting[0][0], self._look)
        elif self._task is not None:
            self._task.cancel()
