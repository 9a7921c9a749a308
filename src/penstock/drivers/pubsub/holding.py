"""What a consumer of Pub/Sub holds: deliveries with their ends, and lines of a key. Pure.

Pub/Sub orders the messages of a key, and may deliver several of them together. Kind `key_shared`
gets one of a key at a time: the others wait in a line until it is finished. When it goes back, so
does its line, since all of them come again in order.
"""

from collections import deque
from collections.abc import Iterable
from math import ceil

from penstock.drivers.foreign.envelope import Letter


class Hold:
    """One delivery: how to speak of it, and until when it is ours."""

    __slots__ = ("ack_id", "copy", "is_done", "key", "until")

    def __init__(self, ack_id: str, key: str, until: float) -> None:
        self.ack_id = ack_id
        self.key = key
        self.until = until
        """Monotonic seconds, a little early: Pub/Sub counts from when it hears of it."""
        self.is_done = False
        """Pub/Sub confirmed that it is finished."""
        self.copy: Letter | None = None
        """The letter as it goes to the dead letters, the same for every try."""


def whole_seconds(lease_s: float) -> int:
    """A lease in the words of Pub/Sub, which counts seconds."""
    return max(1, ceil(lease_s))


class Lines:
    """Who of each key goes next."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[Letter]] = {}
        """Key → those that wait behind the one that is out."""
        self._ready: list[Letter] = []

    def admit(self, letters: Iterable[Letter]) -> list[Letter]:
        """Those of new letters that may go out now; the others wait."""
        found: list[Letter] = []
        for letter in letters:
            key = letter.token.key
            line = self._lines.get(key) if key else None
            if line is not None:
                line.append(letter)
                continue
            if key:
                self._lines[key] = deque()
            found.append(letter)
        return found

    def finished(self, letters: Iterable[Letter]) -> bool:
        """Letters are done with: the next of their keys are ready. True when there are any."""
        for letter in letters:
            line = self._lines.get(letter.token.key)
            if line is None:
                continue
            if line:
                self._ready.append(line.popleft())
            else:
                del self._lines[letter.token.key]
        return bool(self._ready)

    def returned(self, letters: Iterable[Letter]) -> list[Letter]:
        """Letters go back; these must go back with them."""
        found: list[Letter] = []
        for letter in letters:
            found += self._lines.pop(letter.token.key, ())
        return found

    def take(self, now: float) -> tuple[list[Letter], list[Letter]]:
        """Those whose turn has come; and those whose time is over, with their lines."""
        ready, self._ready = self._ready, []
        good = [letter for letter in ready if letter.token.until > now]
        late = [letter for letter in ready if letter.token.until <= now]
        return good, late + self.returned(late)

    def clear(self) -> list[Letter]:
        """Everything that waits."""
        found = self._ready + [letter for line in self._lines.values() for letter in line]
        self._ready = []
        self._lines.clear()
        return found
