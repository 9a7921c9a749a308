"""What every command takes, and which broker it means: flag, environment, file or context."""

import os
import tomllib
from argparse import SUPPRESS, ArgumentParser, Namespace
from pathlib import Path
from typing import Final, NamedTuple

from penstock.cli.parser import BadUsage

URL_DEFAULT: Final = "file:./penstock-data"
URL_VARIABLE: Final = "PENSTOCK_URL"
FILE: Final = Path("penstock.toml")
OURS: Final = ("file", "memory", "penstock")
"""Kinds of URL that lead to a broker of our own."""
FILE_VARIABLE: Final = "PENSTOCK_CONFIG"
CONTEXT_VARIABLE: Final = "PENSTOCK_CONTEXT"


class Chosen(NamedTuple):
    """The broker a command means, and who said so."""

    url: str
    source: str
    context: str | None = None


def add_common(parser: ArgumentParser) -> None:
    """Adds the options of every command; they may stand before or after its name."""
    common = parser.add_argument_group("common options")
    common.add_argument(
        "--url",
        metavar="URL",
        default=SUPPRESS,
        help="the broker: file:DIR, penstock://HOST:PORT, memory:, or another one, as "
        "kafka://HOST; `penstock capabilities` lists them "
        f"(default: ${URL_VARIABLE}, then the context ${CONTEXT_VARIABLE} names, then `url` in "
        f"{FILE} or the file ${FILE_VARIABLE} names, then the context in use, then {URL_DEFAULT})",
    )
    common.add_argument(
        "--context", metavar="NAME", default=SUPPRESS, help="the broker this context names"
    )
    common.add_argument(
        "--json", action="store_true", default=SUPPRESS, help="print JSON for machines"
    )
    common.add_argument(
        "-q", "--quiet", action="store_true", default=SUPPRESS, help="print no remarks"
    )
    common.add_argument(
        "-v",
        "--verbose",
        action="count",
        default=SUPPRESS,
        help="show the broker's log; twice: also its details, and the trace of an error",
    )


def verbosity(arguments: Namespace) -> int:
    """How often -v was given."""
    return int(getattr(arguments, "verbose", 0) or 0)


def url_of(arguments: Namespace) -> str:
    """The broker's URL, whoever chose it."""
    return chosen(arguments).url


def chosen(arguments: Namespace) -> Chosen:
    """The broker: flag, then environment, then penstock.toml, then the context in use."""
    flag, context = getattr(arguments, "url", None), getattr(arguments, "context", None)
    if flag and context:
        raise BadUsage("--url and --context both name a broker; give one of them")
    if flag:
        return Chosen(flag, "--url")
    if context:
        return _in_context(context, "--context")
    if os.environ.get(URL_VARIABLE):
        return Chosen(os.environ[URL_VARIABLE], f"${URL_VARIABLE}")
    if os.environ.get(CONTEXT_VARIABLE):
        return _in_context(os.environ[CONTEXT_VARIABLE], f"${CONTEXT_VARIABLE}")
    named = os.environ.get(FILE_VARIABLE)
    path = Path(named) if named else FILE
    found = _url_in_file(path, is_named=bool(named))
    if found:
        return Chosen(found, f"`url` in {path}")
    return _current() or Chosen(URL_DEFAULT, "the default")


def _in_context(name: str, source: str) -> Chosen:
    from penstock.cli import context, contexts

    return Chosen(context.find(contexts.read(), name), source, name)


def _current() -> Chosen | None:
    from penstock.cli import context, contexts

    if not contexts.file_path().exists():
        return None
    known = contexts.read()
    if known.current is None:
        return None
    return Chosen(context.find(known, known.current), "the context in use", known.current)


def _url_in_file(path: Path, *, is_named: bool) -> str | None:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if is_named:
            raise BadUsage(f"${FILE_VARIABLE} names {path}, which is not there") from None
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise BadUsage(f"{path} cannot be read: {error}") from error
    try:
        found = tomllib.loads(text).get("url")
    except tomllib.TOMLDecodeError as error:
        raise BadUsage(f"{path} is not valid TOML: {error}") from error
    if found is not None and not isinstance(found, str):
        raise BadUsage(f"{path}: `url` must be text, not {found!r}")
    return found
