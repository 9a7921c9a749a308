"""What every command takes, and which broker it means: flag, environment, file, default."""

import os
import tomllib
from argparse import SUPPRESS, ArgumentParser, Namespace
from pathlib import Path
from typing import Final

from penstock.cli.parser import BadUsage

URL_DEFAULT: Final = "file:./penstock-data"
URL_VARIABLE: Final = "PENSTOCK_URL"
FILE: Final = Path("penstock.toml")


def add_common(parser: ArgumentParser) -> None:
    """Adds the options of every command; they may stand before or after its name."""
    common = parser.add_argument_group("common options")
    common.add_argument(
        "--url",
        metavar="URL",
        default=SUPPRESS,
        help=f"the broker: file:DIR or memory: (default: ${URL_VARIABLE}, then `url` in {FILE}, "
        f"then {URL_DEFAULT})",
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
    """The broker's URL: flag, then environment, then penstock.toml, then the default."""
    given = getattr(arguments, "url", None) or os.environ.get(URL_VARIABLE) or _url_in_file()
    return given or URL_DEFAULT


def _url_in_file() -> str | None:
    try:
        text = FILE.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise BadUsage(f"{FILE} cannot be read: {error}") from error
    try:
        found = tomllib.loads(text).get("url")
    except tomllib.TOMLDecodeError as error:
        raise BadUsage(f"{FILE} is not valid TOML: {error}") from error
    if found is not None and not isinstance(found, str):
        raise BadUsage(f"{FILE}: `url` must be text, not {found!r}")
    return found
