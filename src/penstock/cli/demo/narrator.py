"""Who tells the story: numbered chapters, sentences, promises kept or broken."""

import sys

from penstock.cli.output import DIM, GREEN, RED, Output


class Narrator:
    """Prints the story, unless a machine is listening."""

    def __init__(self, output: Output) -> None:
        self.output = output
        self._step = 0

    def step(self, title: str) -> None:
        """Begins a chapter."""
        self._step += 1
        if not self.output.is_json:
            self.output.say()
            self.output.heading(f"{self._step}. {title}")

    def say(self, text: str) -> None:
        """A sentence; a person who watches sees it at once."""
        if not self.output.is_json:
            self.output.say(f"   {text}")
            sys.stdout.flush()

    def aside(self, text: str) -> None:
        """A detail."""
        self.say(self.output.paint(text, DIM))

    def check(self, text: str, *, is_kept: bool) -> None:
        """A promise, kept or broken."""
        mark = self.output.paint("kept  ", GREEN) if is_kept else self.output.paint("BROKEN", RED)
        self.say(f"{mark}  {text}")
