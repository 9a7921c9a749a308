"""Threads for handlers that are plain functions. They never keep a program from ending."""

from asyncio import AbstractEventLoop, Future
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, copy_context
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple


class Job(NamedTuple):
    """A call to make in a thread."""

    context: Context
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    answer: "Future[Any]"


class Workers:
    """Up to `count` threads, started when first needed."""

    def __init__(self, loop: AbstractEventLoop, count: int, name: str) -> None:
        self._loop = loop
        self._count = count
        self._name = name
        self._threads: list[Thread] = []
        self._busy = 0
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()

    def call(self, function: Callable[..., Any], *arguments: Any) -> "Future[Any]":
        """Calls the function in a thread; the future has what it returns or raises."""
        answer: Future[Any] = self._loop.create_future()
        self._busy += 1
        if self._busy > len(self._threads) and len(self._threads) < self._count:
            name = f"{self._name}-{len(self._threads)}"
            thread = Thread(target=self._work, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()
        self._jobs.put(Job(copy_context(), function, arguments, answer))
        return answer

    def close(self) -> None:
        """Lets the threads end after what they are doing."""
        for _ in self._threads:
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            result: Any = None
            error: BaseException | None = None
            try:
                result = job.context.run(job.function, *job.arguments)
            except BaseException as raised:  # noqa: BLE001 - whoever waits gets whatever it is
                error = raised
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._done, job.answer, result, error)
            del job, result, error

    def _done(self, answer: "Future[Any]", result: Any, error: BaseException | None) -> None:
        self._busy -= 1
        if answer.done():
            return
        if error is None:
            answer.set_result(result)
        elif isinstance(error, Exception):
            answer.set_exception(error)
        else:
            # StopIteration and the like cannot travel through a future as they are.
            answer.set_exception(RuntimeError(f"the handler raised {error!r}"))
