"""The `penstock` command: finds the command, runs it, and turns what went wrong into an exit code.

0 done · 1 failed · 2 wrong command line · 3 the broker cannot be reached · 130 interrupted
"""

import asyncio
import os
import sys
import traceback
from argparse import Namespace
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from penstock.cli import (
    backup,
    bridge,
    capabilities,
    completion,
    config,
    context,
    dead,
    dump,
    explain,
    gateway,
    logs,
    options,
    peek,
    pipeline,
    pub,
    restore,
    run,
    salvage,
    serve,
    stats,
    sub,
    subscriptions,
    tail,
    top,
    topics,
    verify,
)
from penstock.cli.bench import command as bench
from penstock.cli.command import Command, Group
from penstock.cli.demo import command as demo
from penstock.cli.output import Output
from penstock.cli.parser import BadUsage, Parser, unknown_arguments
from penstock.vocabulary.errors import PenstockError

OK, FAILED, USAGE, UNREACHABLE, INTERRUPTED = 0, 1, 2, 3, 130

COMMANDS: Final[tuple[Command | Group, ...]] = (
    pub.COMMAND,
    sub.COMMAND,
    serve.COMMAND,
    run.COMMAND,
    topics.GROUP,
    subscriptions.GROUP,
    dead.GROUP,
    peek.COMMAND,
    tail.COMMAND,
    stats.COMMAND,
    top.COMMAND,
    explain.COMMAND,
    capabilities.COMMAND,
    verify.COMMAND,
    backup.COMMAND,
    restore.COMMAND,
    salvage.COMMAND,
    dump.COMMAND,
    bridge.COMMAND,
    config.GROUP,
    context.GROUP,
    completion.COMMAND,
    bench.COMMAND,
    gateway.COMMAND,
    pipeline.GROUP,
    demo.COMMAND,
)

EXIT_CODES: Final = {
    "usage": USAGE,
    "invalid-argument": USAGE,
    "invalid-configuration": USAGE,
    "invalid-name": USAGE,
    "unavailable": UNREACHABLE,
    "draining": UNREACHABLE,
    "access-refused": UNREACHABLE,
    "unconfirmed": UNREACHABLE,
    "not-a-store": UNREACHABLE,
    "store-in-use": UNREACHABLE,
    "store-too-new": UNREACHABLE,
    "store-damaged": UNREACHABLE,
    "bad-pipeline-file": USAGE,
}
"""Exit code of each error code; every other error is simply FAILED."""

_EXAMPLES: Final = """\
examples:
  penstock pub orders '{"id": 1}' --key customer-7
  penstock sub orders --subscription billing --count 1
  penstock demo"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    output = Output(is_json="--json" in words, is_quiet="-q" in words or "--quiet" in words)
    is_traced = "-vv" in words or words.count("-v") + words.count("--verbose") > 1
    try:
        code = _run(words, output)
        sys.stdout.flush()
    except SystemExit as stop:  # argparse ends this way after --help and --version
        code = int(stop.code or 0)
    except BadUsage as error:
        output.error("usage", error.text)
        if error.usage:
            output.notice(error.usage)
        code = USAGE
    except PenstockError as error:
        output.error(error.code, str(error), error.details.get("problems", ()))
        code = EXIT_CODES.get(error.code, FAILED)
        _trace(is_wanted=is_traced)
    except KeyboardInterrupt:
        output.notice("\ninterrupted")
        code = INTERRUPTED
    except BrokenPipeError:
        code = _end_quietly()
    except OSError as error:
        output.error("system", _system_text(error))
        code = FAILED
        _trace(is_wanted=is_traced)
    except Exception as error:  # noqa: BLE001 - the root: a person gets a line, not a trace
        output.error("defect", f"{type(error).__name__}: {error} (-vv shows where)")
        code = FAILED
        _trace(is_wanted=is_traced)
    return code


def _run(words: list[str], output: Output) -> int:
    arguments = parse(words)
    if not hasattr(arguments, "run"):
        arguments.parser.print_help()
        return OK if arguments.parser.prog == "penstock" and not words else USAGE
    output.is_json = getattr(arguments, "json", False)
    output.is_quiet = getattr(arguments, "quiet", False)
    logs.show(options.verbosity(arguments), is_quiet=output.is_quiet)
    done: Any = arguments.run(arguments, output)
    if asyncio.iscoroutine(done):
        done = asyncio.run(done)
    return int(done)


def parse(words: Sequence[str]) -> Namespace:
    """The command line as values; `run` and `parser` belong to the chosen command."""
    arguments, extras = build().parse_known_args(_completed(words))
    if extras:
        raise unknown_arguments(arguments.parser, extras)
    return arguments


def _completed(words: Sequence[str]) -> list[str]:
    """`penstock topics --url …` lists them: options alone ask a group for its list."""
    found = list(words)
    groups = (entry for entry in COMMANDS if not isinstance(entry, Command))
    listing = {group.name for group in groups if "list" in {each.name for each in group.commands}}
    has_options_only = len(found) > 1 and found[0] in listing and found[1].startswith("-")
    if has_options_only and not {"-h", "--help"} & set(found):
        found.insert(1, "list")
    return found


def build() -> Parser:
    """The parser of every command."""
    root = Parser(
        prog="penstock",
        description="Durable messaging for Python: a confirmed message survives a crash.",
        epilog=_EXAMPLES,
    )
    root.add_argument("--version", action="version", version=f"penstock {version()}")
    root.set_defaults(parser=root)
    options.add_common(root)
    commands = root.add_subparsers(title="commands", metavar="COMMAND")
    for entry in COMMANDS:
        if isinstance(entry, Command):
            _add(commands, entry)
            continue
        group = commands.add_parser(entry.name, help=entry.summary, description=entry.summary)
        group.epilog = _examples(entry.commands[0].example)
        group.set_defaults(parser=group)
        members = group.add_subparsers(title="commands", metavar="COMMAND")
        for member in entry.commands:
            _add(members, member)
    return root


def _add(commands: Any, entry: Command) -> None:
    text = f"{entry.summary}\n\n{entry.details}" if entry.details else entry.summary
    parser = commands.add_parser(
        entry.name, help=entry.summary, description=text, epilog=_examples(entry.example)
    )
    entry.add(parser)
    options.add_common(parser)
    parser.set_defaults(run=entry.run, parser=parser)


def _examples(text: str) -> str:
    lines = "\n".join(f"  penstock {line}" for line in text.splitlines())
    title = "examples" if "\n" in text else "example"
    return f"{title}:\n{lines}"


def version() -> str:
    """The installed version of Penstock."""
    from importlib import metadata

    try:
        return metadata.version("penstock")
    except metadata.PackageNotFoundError:
        return "0 (not installed)"


def _trace(*, is_wanted: bool) -> None:
    if is_wanted:
        traceback.print_exc()


def _end_quietly() -> int:
    """The reader of a pipe went away: what is still buffered has nowhere to go."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return OK


def _system_text(error: OSError) -> str:
    text = error.strerror or str(error)
    return f"{error.filename}: {text}" if error.filename else text
