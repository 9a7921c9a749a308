"""A progress bar on standard error: only on a terminal, only when somebody wants to hear it."""

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from penstock.cli.output import Output, is_terminal, number

BAR_WIDTH: Final = 24
REDRAW_S: Final = 0.1


class Progress:
    """Counts towards a total, or just up when there is none. A context manager."""

    def __init__(
        self,
        output: Output,
        label: str,
        total: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.is_shown = is_terminal(sys.stderr) and not output.is_quiet
        self.label = label
        self._total = total
        self._clock = clock
        self._began = clock()
        self._drawn = float("-inf")
        self._done: float = 0
        self._width = 0

    def __enter__(self) -> Self:
        self.draw()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.clear()

    def add(self, count: float = 1) -> None:
        """Tells of progress."""
        self.set(self._done + count)

    def set(self, done: float) -> None:
        """Tells how far it is."""
        self._done = done
        if self.is_shown and self._clock() - self._drawn >= REDRAW_S:
            self.draw()

    def draw(self) -> None:
        """Shows the bar now."""
        if not self.is_shown:
            return
        self._drawn = self._clock()
        text = self.text()
        sys.stderr.write("\r" + text.ljust(self._width))
        sys.stderr.flush()
        self._width = len(text)

    def clear(self) -> None:
        """Takes the bar away."""
        if self.is_shown and self._width:
            sys.stderr.write("\r" + " " * self._width + "\r")
            sys.stderr.flush()
            self._width = 0

    def text(self) -> str:
        """The line as it would be drawn."""
        elapsed = max(self._clock() - self._began, 1e-9)
        if not self._total:
            return f"{self.label}  {number(round(self._done))}  {elapsed:.0f} s"
        share = min(self._done / self._total, 1.0)
        full = round(share * BAR_WIDTH)
        left = "" if not share else f"  {elapsed / share - elapsed:.0f} s left"
        return f"{self.label} [{'#' * full}{'.' * (BAR_WIDTH - full)}] {share:4.0%}{left}"
