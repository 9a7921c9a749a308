"""`penstock backup`: a copy of a store, made while it is in use."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

import msgspec

from penstock.cli.command import Command
from penstock.cli.connection import opened
from penstock.cli.output import Output, plural, size
from penstock.cli.progress import Progress


def add(parser: ArgumentParser) -> None:
    """Adds the arguments of this command."""
    parser.add_argument(
        "out", metavar="OUT", type=Path, help="a new file that ends in .tar, or a new folder"
    )


async def run(arguments: Namespace, output: Output) -> int:
    """Copies, and says what the copy holds."""
    out: Path = arguments.out
    async with opened(arguments) as client:
        with Progress(output, f"copying to {out}", 1.0) as progress:
            manifest = await client.backup(
                out, progress=lambda done, total: progress.set(done / max(total, 1))
            )
    used = sum(row.used for row in manifest.files)
    if output.is_json:
        rows = msgspec.to_builtins(manifest)
        output.document({"out": str(out), "bytes": used, **rows})
    else:
        output.say(f"{out}: {plural(len(manifest.files), 'file')}, {size(used)}")
        output.notice(f"to use it: penstock restore {out} DIR")
    return 0


COMMAND = Command(
    "backup",
    "copy a store while it is in use",
    "backup orders.tar\nbackup orders.tar --url penstock://127.0.0.1:8001",
    add,
    run,
    details="The copy holds everything that was confirmed before the command began; publishing\n"
    "and receiving go on meanwhile. It has its name only when it is whole and durable.",
)
