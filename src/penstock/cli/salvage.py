"""`penstock salvage`: copies everything that is whole in a broken store to a new one."""

from argparse import ArgumentParser, Namespace
from contextlib import suppress

import msgspec

from penstock.cli import values
from penstock.cli.command import Command
from penstock.cli.output import Output, plural
from penstock.cli.progress import Progress
from penstock.cli.verify import existing


def add(parser: ArgumentParser) -> None:
    """Adds the arguments of this command."""
    parser.add_argument("dir", metavar="DIR", type=values.folder, help="the broken store")
    parser.add_argument("out", metavar="OUT", type=values.folder, help="a new or empty folder")


def run(arguments: Namespace, output: Output) -> int:
    """Exit code 0 when nothing was lost, else 1; the new store is usable in both cases."""
    from penstock.broker.salvage import salvage
    from penstock.cli.watching import WatchedDisk
    from penstock.journal.disk import FolderDisk

    folder = existing(arguments.dir)
    is_new = not arguments.out.exists()
    with Progress(output, f"reading {folder}, megabytes") as progress:
        source = WatchedDisk(folder, progress)
        try:
            target = FolderDisk(arguments.out)
            try:
                report = salvage(source, target)
            except BaseException:
                if is_new:
                    with suppress(OSError):  # it is not empty
                        arguments.out.rmdir()
                raise
            finally:
                target.close()
        finally:
            source.close()
    if output.is_json:
        output.document(msgspec.to_builtins(report))
    else:
        output.table(["TOPIC", ">MESSAGES", "LOST"], report.rows())
        output.say()
        output.say(
            f"{plural(report.messages, 'message')} copied to {arguments.out}, "
            f"{report.lost_messages:,} lost"
        )
        for note in report.notes:
            output.say(note)
    return 1 if report.lost_messages else 0


COMMAND = Command(
    "salvage",
    "copy everything that is whole in a broken store to a new one",
    "salvage ./penstock-data ./penstock-data-salvaged",
    add,
    run,
    details="The broken store is only read. Messages whose topic is not known any more go to the\n"
    "topic `salvaged.<number>`.",
)
