"""A question before something is removed for good: on a terminal only, skipped by --yes."""

import sys
from argparse import ArgumentParser, Namespace

from penstock.cli.output import Output, is_terminal


def add_yes(parser: ArgumentParser) -> None:
    """Adds the option that answers the question beforehand."""
    parser.add_argument("--yes", action="store_true", help="do not ask")


def agreed(arguments: Namespace, output: Output, question: str) -> bool:
    """True when the person agrees, said --yes, or is a program."""
    if arguments.yes or output.is_json or not is_terminal(sys.stdin):
        return True
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}
