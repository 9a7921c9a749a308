"""The argument parser: argparse that answers a wrong name with the nearest right one.

It never exits the process: a wrong command line raises BadUsage, which main.py turns into one
line and exit code 2.
"""

import argparse
import difflib
from collections.abc import Iterable
from typing import Any, NoReturn

from penstock.vocabulary.credentials import without_credentials


class BadUsage(Exception):
    """The command line is wrong; `usage` says how it should look."""

    def __init__(self, text: str, usage: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.usage = usage


class Parser(argparse.ArgumentParser):
    """Complete option names only, examples shown as they are written, no exit."""

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("allow_abbrev", False)
        settings.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(**settings)

    def error(self, message: str) -> NoReturn:
        raise BadUsage(message, f"{self.format_usage().strip()}\ntry: {self.prog} --help")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        known = [str(choice) for choice in action.choices]
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - it has no public name
            shown = without_credentials(str(value))
            text = f"there is no command {shown!r}; {suggestion(str(value), known)}"
            raise BadUsage(text, f"try: {self.prog} --help")
        raise argparse.ArgumentError(action, f"{value!r} is not one of {', '.join(known)}")

    def option_names(self) -> list[str]:
        """Every option this parser knows."""
        return sorted(self._option_string_actions)


def unknown_arguments(parser: Parser, extras: list[str]) -> BadUsage:
    """What to say about arguments nobody asked for."""
    first = without_credentials(extras[0])
    usage = f"{parser.format_usage().strip()}\ntry: {parser.prog} --help"
    if first.startswith("-"):
        name = first.partition("=")[0]
        close = nearest(name, parser.option_names())
        hint = f"; did you mean {close[0]}?" if close else ""
        return BadUsage(f"there is no option {name}{hint}", usage)
    return BadUsage(f"unexpected argument {first!r}", usage)


def suggestion(name: str, known: Iterable[str]) -> str:
    """'did you mean …?' when something is close, otherwise the list of what there is."""
    known = list(known)
    close = nearest(name, known)
    if close:
        return f"did you mean {' or '.join(repr(other) for other in close)}?"
    return f"there are: {', '.join(known)}"


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """The known names most like this one, best first; at most three."""
    return difflib.get_close_matches(name, list(known), n=3, cutoff=0.6)
