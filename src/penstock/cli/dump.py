"""`penstock dump`: every record of a store, as it stands on disk."""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import Any, Final

from penstock.cli import values
from penstock.cli.command import Command
from penstock.cli.message import shortened
from penstock.cli.output import Output
from penstock.cli.verify import existing

_LEFT_OUT: Final = frozenset({"row", "kind", "position", "file", "group", "messages", "records"})
_USUAL: Final = {"checksum": "ok", "state": "ok"}
"""Values not worth a word."""


def add(parser: ArgumentParser) -> None:
    """Adds the arguments of this command."""
    parser.add_argument("dir", metavar="DIR", type=values.folder, help="the folder of the store")
    parser.add_argument("--bodies", action="store_true", help="show the messages too")


def run(arguments: Namespace, output: Output) -> int:
    """Prints row by row; with --json one JSON object a line."""
    from penstock.journal.disk import FolderDisk
    from penstock.journal.dump import dump

    disk = FolderDisk(existing(arguments.dir), is_read_only=True)
    try:
        for row in dump(disk, bodies=arguments.bodies):
            if output.is_json:
                output.row(row)
            else:
                for line in lines(row):
                    output.say(line)
    finally:
        disk.close()
    return 0


def lines(row: dict[str, Any]) -> Iterator[str]:
    """A row for people: where, what, and its fields; parts and messages indented below."""
    where = row.get("position") or row.get("file", "")
    what = row.get("kind") or row["row"]
    yield f"{where:<24} {what:<19} {_fields(row)}".rstrip()
    for part in row.get("records", ()):
        yield f"{'':<24}   {part['kind']:<17} {_fields(part)}".rstrip()
        yield from _messages(part)
    yield from _messages(row)


def _messages(row: dict[str, Any]) -> Iterator[str]:
    messages = row.get("messages", [])
    if isinstance(messages, str):
        yield f"{'':<26} {messages}"
        return
    for message in messages:
        key = "" if message["key"] is None else f"  key={message['key']}"
        yield f"{'':<26} {message['offset']}  id={message['id']}{key}  {_body(message['body'])}"


def _body(body: Any) -> str:
    return (
        str(body) if isinstance(body, dict) else shortened(None if body is None else body.encode())
    )


def _fields(row: dict[str, Any]) -> str:
    return " ".join(
        f"{name}={value}"
        for name, value in row.items()
        if name not in _LEFT_OUT and value is not None and _USUAL.get(name) != value
    )


COMMAND = Command(
    "dump",
    "every record of a store, as it stands on disk",
    "dump ./penstock-data --bodies\ndump ./penstock-data --json > records.ndjson",
    add,
    run,
    details="Nothing is changed. Positions are written `segment:byte`.",
)
