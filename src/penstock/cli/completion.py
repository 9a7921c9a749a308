"""`penstock completion`: what a shell needs to complete commands, options and topic names.

The scripts are made from the parser, so they know exactly the commands of this version.
"""

import argparse
import asyncio
import shlex
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from penstock.cli import contexts
from penstock.cli.command import Command
from penstock.cli.options import chosen
from penstock.cli.output import Output, printable
from penstock.cli.parser import BadUsage
from penstock.vocabulary.errors import PenstockError

SHELLS: Final = ("bash", "zsh", "fish")
TOPICS: Final = "topics"
CONTEXTS: Final = "contexts"
CONTEXT_OPTION: Final = "--context"
CONTEXT_NAMES: Final = f"penstock completion {CONTEXTS} 2>/dev/null"
WAIT_S: Final = 1.0
"""Whoever pressed the tab key does not wait longer for topic names."""


class Option(NamedTuple):
    """One way to write an option."""

    name: str
    summary: str
    choices: tuple[str, ...] | None
    """What may follow; empty = anything, None = nothing."""


class Node(NamedTuple):
    """One command or group: the words that lead to it, and what may follow."""

    path: str
    summary: str
    options: list[Option]
    words: list[tuple[str, str]]
    """Commands or fixed words that may come next, each with a summary."""
    has_topic: bool
    has_file: bool


def add(parser: ArgumentParser) -> None:
    """Adds the arguments of this command."""
    parser.add_argument(
        "shell",
        choices=(*SHELLS, TOPICS, CONTEXTS),
        help="whose script to print; `topics` prints topic names, where that is quick, and "
        "`contexts` the names of contexts",
    )


async def run(arguments: Namespace, output: Output) -> int:
    """Prints the script, or the names."""
    if arguments.shell in {TOPICS, CONTEXTS}:
        is_topics = arguments.shell == TOPICS
        for name in await topic_names(arguments) if is_topics else context_names():
            output.say(name)
        return 0
    from penstock.cli.main import build

    found = list(nodes(build()))
    writer = {"bash": bash, "zsh": zsh, "fish": fish}[arguments.shell]
    output.say(writer(found))
    return 0


# -- what there is -------------------------------------------------------------------------------


def nodes(parser: ArgumentParser, summary: str = "") -> Iterator[Node]:
    """The parser and every command below it."""
    options: list[Option] = []
    words: list[tuple[str, str]] = []
    has_topic = has_file = False
    below: dict[str, tuple[ArgumentParser, str]] = {}
    for action in parser._actions:  # noqa: SLF001 - argparse has no public way to ask
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - it has no public name
            texts = {each.dest: each.help or "" for each in action._choices_actions}  # noqa: SLF001
            below = {name: (each, texts.get(name, "")) for name, each in action.choices.items()}
            words = [(name, text) for name, (_, text) in below.items()]
        elif action.option_strings:
            options += [_option(name, action) for name in action.option_strings]
        else:
            words += [(str(choice), "") for choice in action.choices or ()]
            metavar = str(action.metavar or "")
            has_topic = has_topic or metavar == "TOPIC"
            has_file = has_file or metavar in {"DIR", "FILE", "OUT"}
    yield Node(parser.prog, summary, options, words, has_topic, has_file)
    for child, text in below.values():
        yield from nodes(child, text)


def _option(name: str, action: argparse.Action) -> Option:
    summary = _short(action.help or "")
    if action.nargs == 0:
        return Option(name, summary, None)
    return Option(name, summary, tuple(str(choice) for choice in action.choices or ()))


def _short(text: str) -> str:
    return text.partition(" (")[0].partition(";")[0].replace("\n", " ")


async def topic_names(arguments: Namespace) -> list[str]:
    """Names of topics of a broker that is running; none when asking would mean opening a store."""
    import penstock

    try:
        url = chosen(arguments).url
        if not is_quick(url):
            return []
        async with asyncio.timeout(WAIT_S), penstock.connect(url) as client:
            rows: list[dict[str, Any]] = await client.topics()
    except (PenstockError, BadUsage, OSError, TimeoutError):
        return []  # A tab key is no place for an error.
    return [printable(str(row["topic"]).encode()) for row in rows]


def context_names() -> list[str]:
    """Names of contexts."""
    try:
        return sorted(contexts.read().urls)
    except PenstockError:
        return []  # A tab key is no place for an error.


def is_quick(url: str) -> bool:
    """True when a running broker can be asked."""
    if not url.startswith("file:"):
        return url.startswith("penstock")
    from penstock.drivers.embedded import folder_of
    from penstock.journal.disk import FolderDisk

    folder = folder_of(url)
    if not folder.is_dir():
        return False
    disk = FolderDisk(folder, is_read_only=True)
    try:
        return disk.owner() is not None
    finally:
        disk.close()


# -- scripts -------------------------------------------------------------------------------------


def bash(found: list[Node]) -> str:
    """A function for `complete -F`."""
    # Names that mean something else in zsh (path, words, options) are not used here.
    places = " | ".join(f'"{node.path}"' for node in found)
    values = [
        f'    "{node.path} {option.name}") {_bash_values(option)}; return ;;'
        for node in found
        for option in node.options
        if option.choices is not None
    ]
    cases = [
        f'    "{node.path}") flags="{" ".join(option.name for option in node.options)}"; '
        f'follow="{" ".join(word for word, _ in node.words)}"; topic={int(node.has_topic)}; '
        f"file={int(node.has_file)} ;;"
        for node in found
    ]
    return "\n".join(
        [
            "# bash completion of penstock; use: source <(penstock completion bash)",
            "_penstock() {",
            '  local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}"',
            '  local place="penstock" follow="" flags="" topic=0 file=0 i',
            "  COMPREPLY=()",
            "  for ((i = 1; i < COMP_CWORD; i++)); do",
            '    case "$place ${COMP_WORDS[i]}" in',
            f'    {places}) place="$place ${{COMP_WORDS[i]}}" ;;',
            "    esac",
            "  done",
            '  case "$place $prev" in',
            *values,
            "  esac",
            '  case "$place" in',
            *cases,
            "  esac",
            '  if [[ "$cur" == -* ]]; then follow="$flags"',
            '  elif ((topic)); then follow="$follow $(penstock completion topics 2>/dev/null)"; fi',
            '  COMPREPLY=($(compgen -W "$follow" -- "$cur"))',
            '  if ((file)) && [[ "$cur" != -* ]]; then COMPREPLY+=($(compgen -f -- "$cur")); fi',
            "}",
            "complete -F _penstock penstock",
        ]
    )


def _bash_values(option: Option) -> str:
    if option.name == CONTEXT_OPTION:
        return f'COMPREPLY=($(compgen -W "$({CONTEXT_NAMES})" -- "$cur"))'
    if not option.choices:
        return 'COMPREPLY=($(compgen -f -- "$cur"))'
    return f'COMPREPLY=($(compgen -W "{" ".join(option.choices)}" -- "$cur"))'


def zsh(found: list[Node]) -> str:
    """The function of bash, which zsh understands with its own `bashcompinit`."""
    lines = bash(found).splitlines()
    return "\n".join(
        [
            "# zsh completion of penstock; use: source <(penstock completion zsh)",
            "autoload -U +X compinit && compinit",
            "autoload -U +X bashcompinit && bashcompinit",
            *lines[1:],
        ]
    )


def fish(found: list[Node]) -> str:
    """One `complete` line for each word and option."""
    lines = [
        "# fish completion of penstock; use: penstock completion fish | source",
        "function __penstock_at",
        "  set -l path penstock",
        "  for word in (commandline -opc)[2..]",
        f'    contains -- "$path $word" {" ".join(shlex.quote(node.path) for node in found)}',
        '    and set path "$path $word"',
        "  end",
        '  test "$path" = "$argv"',
        "end",
        "complete -c penstock -f",
    ]
    for node in found:
        at = f"complete -c penstock -n {shlex.quote(f'__penstock_at {node.path}')}"
        lines += [
            f"{at} -a {shlex.quote(word)} -d {shlex.quote(text)}" for word, text in node.words
        ]
        if node.has_topic:
            lines.append(f"{at} -a '(penstock completion topics 2>/dev/null)' -d topic")
        if node.has_file:
            lines.append(f"{at} -F")
        lines += [f"{at} {_fish_option(option)}" for option in node.options]
    return "\n".join(lines)


def _fish_option(option: Option) -> str:
    flag = "-l" if option.name.startswith("--") else "-s"
    text = f"{flag} {option.name.lstrip('-')} -d {shlex.quote(option.summary)}"
    if option.choices is None:
        return text
    if option.name == CONTEXT_OPTION:
        return f"{text} -x -a '({CONTEXT_NAMES})'"
    return (
        f"{text} -x -a {shlex.quote(' '.join(option.choices))}" if option.choices else text + " -r"
    )


COMMAND = Command(
    "completion",
    "let a shell complete commands, options and topic names",
    "completion bash > ~/.local/share/bash-completion/completions/penstock\n"
    "completion zsh > ~/.penstock.zsh\n"
    "completion fish > ~/.config/fish/completions/penstock.fish",
    add,
    run,
)
