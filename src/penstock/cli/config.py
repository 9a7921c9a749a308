"""`penstock config`: whether the configuration is right, and where each setting comes from."""

import os
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from penstock.cli.command import Command, Group
from penstock.cli.output import GREEN, Output, plural
from penstock.vocabulary.errors import InvalidConfiguration


def add(parser: ArgumentParser) -> None:
    """Adds the arguments of both commands."""
    parser.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        type=Path,
        help="the file (default: $PENSTOCK_CONFIG, then penstock.toml here, if there is one)",
    )


def run_check(arguments: Namespace, output: Output) -> int:
    """Everything that is wrong, one line each; exit code 2 when something is."""
    from penstock.server.configuration import DEFAULT, load

    try:
        loaded = load(arguments.file, os.environ)
    except InvalidConfiguration as error:
        if output.is_json:
            output.document({"ok": False, "problems": error.problems})
        else:
            for problem in error.problems:
                output.error(error.code, problem)
        return 2
    given = [name for name, value in loaded.values.items() if value.source != DEFAULT]
    if output.is_json:
        output.document({"ok": True, "file": _text(loaded.path), "given": given})
    else:
        where = f"{loaded.path}" if loaded.path else "no file"
        output.say(
            f"{output.paint('ok', GREEN)}: {where}, {plural(len(given), 'setting')} given, "
            f"{len(loaded.values) - len(given)} by default"
        )
    return 0


def run_show(arguments: Namespace, output: Output) -> int:
    """Every setting, its value and its source."""
    from penstock.server.configuration import load

    loaded = load(arguments.file, os.environ)
    if output.is_json:
        rows = {
            name: {"value": value.value, "source": value.source}
            for name, value in loaded.values.items()
        }
        output.document({"file": _text(loaded.path), "settings": rows})
    else:
        output.table(
            ["SETTING", "VALUE", "SOURCE"],
            [(name, shown(value), source) for name, (value, source) in loaded.values.items()],
        )
    return 0


def shown(value: Any) -> str:
    """A value as it is written in a file."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "–"
    if isinstance(value, dict):
        return ", ".join(f"{name}={other}" for name, other in value.items()) or "–"
    return str(value)


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


GROUP = Group(
    "config",
    "the configuration of `penstock serve`: check it, show it",
    (
        Command(
            "check",
            "say everything that is wrong with the configuration",
            "config check\nconfig check /etc/penstock.toml",
            add,
            run_check,
            details="Nothing is started. File and environment are checked together.",
        ),
        Command(
            "show",
            "every setting, its value, and where it comes from",
            "config show\nconfig show --json",
            add,
            run_show,
            details="A flag of `penstock serve` beats the environment (PENSTOCK_SERVE_PORT), that\n"
            "beats the file, and that beats the default.",
        ),
    ),
)
