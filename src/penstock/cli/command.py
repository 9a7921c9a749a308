"""What a command is: a name, a summary, an example, its arguments, and what it does."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from penstock.cli.output import Output

Run = Callable[[Namespace, Output], "int | Coroutine[Any, Any, int]"]


@dataclass(frozen=True)
class Command:
    """One command. `run` returns the exit code, or a coroutine that does."""

    name: str
    summary: str
    example: str
    add: Callable[[ArgumentParser], None]
    run: Run
    details: str = ""


@dataclass(frozen=True)
class Group:
    """Several commands under one noun, such as `topics list` and `topics create`."""

    name: str
    summary: str
    commands: tuple[Command, ...]


def nothing(_parser: ArgumentParser) -> None:
    """Adds no arguments: for a command that has only the common ones."""
