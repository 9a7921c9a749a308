"""`penstock run`: starts an application with its capability file, and calls its handlers."""

import asyncio
import os
import runpy
import sys
import traceback
from argparse import ArgumentParser, Namespace
from pathlib import Path

from penstock.cli.command import Command
from penstock.cli.output import Output
from penstock.vocabulary.errors import InvalidArgument, PenstockError


def add(parser: ArgumentParser) -> None:
    """Adds the arguments of this command."""
    parser.add_argument("app", metavar="APP", help="the application: a Python file")
    parser.add_argument(
        "--capabilities",
        metavar="FILE",
        help="its capability file (default: $PENSTOCK_CAPABILITIES)",
    )
    parser.add_argument(
        "--name", metavar="NAME", help="the application's name (default: that of its file)"
    )
    parser.add_argument(
        "--arg",
        action="append",
        default=[],
        metavar="WORD",
        help="an argument of the application; as often as there are (--arg=--fast)",
    )


def run(arguments: Namespace, output: Output) -> int:
    """Runs the file, then calls its handlers until TERM or INT; returns its exit code."""
    from penstock.client import application as applications

    app = Path(arguments.app)
    file = arguments.capabilities or os.environ.get(applications.VARIABLE)
    if not file:
        raise InvalidArgument("which capability file? Name it with --capabilities FILE")
    if not app.is_file():
        raise InvalidArgument(f"there is no application {arguments.app!r}: name a Python file")
    url = getattr(arguments, "url", None)
    application = applications.use_capabilities(file, name=arguments.name or app.stem, url=url)
    is_clean = False
    try:
        application.prepare()
        code = _run_file(app, arguments.arg)
        if code is not None:
            is_clean = code == 0
            return code
        if application.has_handlers:
            client = application.serving(applications.registered())
            output.notice(f"{app.name}: handlers are called; TERM or Ctrl-C ends them")
            asyncio.run(client.run())
        is_clean = True
    finally:
        application.close(is_clean=is_clean)
    return 0


def _run_file(app: Path, words: list[str]) -> int | None:
    """Runs a file as a program; its exit code when it ends itself, 1 when it fails."""
    before = sys.argv, sys.path[:]
    sys.argv = [str(app), *words]
    sys.path.insert(0, str(app.resolve().parent))
    try:
        runpy.run_path(str(app), run_name="__main__")
    except SystemExit as stop:
        if stop.code is not None and not isinstance(stop.code, int):
            print(stop.code, file=sys.stderr)
            return 1
        return stop.code or 0
    except PenstockError:
        raise
    except Exception:  # noqa: BLE001 - what a program of a person raises
        traceback.print_exc()
        return 1
    finally:
        sys.argv, sys.path[:] = before
    return None


COMMAND = Command(
    "run",
    "start an application with its capability file, and call its handlers",
    "run app.py --capabilities capabilities.toml\n"
    "run app.py --capabilities capabilities.toml --url file:./data\n"
    "run app.py --capabilities capabilities.toml --arg=--fast --arg input.csv",
    add,
    run,
    details="The subscriptions of the file are made, then the application runs as a program.\n"
    "When it ends and the file names handlers (delivery = 'push'), they are called until TERM or\n"
    "Ctrl-C. --url uses another broker than the file names.",
)
