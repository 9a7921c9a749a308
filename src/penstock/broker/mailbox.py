"""How answers get from the broker's threads to whoever waits, on their own loop or thread."""

from collections.abc import Callable
from threading import Lock
from typing import Any, Protocol

Target = Callable[[Any], None]
Letter = tuple[Target, Any]


class Mailbox(Protocol):
    """Takes answers from any thread; delivers each by calling its target."""

    def post(self, letters: list[Letter]) -> None:
        """Calls target(answer) for each letter, in order, soon, where the owner wants it."""
        ...


class DirectMailbox:
    """Delivers at once, in the broker's own thread: for short, non-blocking targets."""

    def post(self, letters: list[Letter]) -> None:
        for target, answer in letters:
            target(answer)


DIRECT = DirectMailbox()


class Pending:
    """One answer a plain thread can wait for."""

    __slots__ = ("_lock", "answer", "is_done")

    def __init__(self) -> None:
        self._lock = Lock()
        self._lock.acquire()
        self.answer: Any = None
        self.is_done = False

    def __call__(self, answer: Any) -> None:
        self.answer = answer
        self.is_done = True
        self._lock.release()

    def wait(self) -> Any:
        """The answer. Raises it when it is an error."""
        self._lock.acquire()
        self._lock.release()
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer
