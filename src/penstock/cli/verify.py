"""`penstock verify`: reads a whole store and says what is right and wrong with it."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

import msgspec

from penstock.cli import values
from penstock.cli.command import Command
from penstock.cli.output import GREEN, RED, YELLOW, Output
from penstock.cli.progress import Progress
from penstock.vocabulary.errors import NotAStore

_COLOURS = {"ok": GREEN, "torn": YELLOW}


def add(parser: ArgumentParser) -> None:
    """Adds the arguments of this command."""
    parser.add_argument(
        "dir", metavar="DIR", type=values.folder, help="the folder of the store, or a backup"
    )


def run(arguments: Namespace, output: Output) -> int:
    """Exit code 0 when nothing that was confirmed is damaged, else 1."""
    from penstock.cli import restore
    from penstock.cli.watching import WatchedDisk, folder_megabytes
    from penstock.journal.restoring import is_backup
    from penstock.journal.verify import Verdict, verify

    if is_backup(arguments.dir):
        return restore.verify(arguments.dir, output)
    folder = existing(arguments.dir)
    with Progress(output, f"reading {folder}", folder_megabytes(folder)) as progress:
        disk = WatchedDisk(folder, progress)
        try:
            report = verify(disk)
        finally:
            disk.close()
    if output.is_json:
        output.document(msgspec.to_builtins(report))
    else:
        verdict = str(report.verdict)
        output.table(["FILE", "VERDICT", ">RECORDS", "REMARK"], report.rows())
        output.say()
        lost = "an unknown number" if report.lost_records is None else f"{report.lost_records:,}"
        output.say(
            f"{output.paint(verdict, _COLOURS.get(verdict, RED))}: "
            f"{report.records:,} records read, {lost} lost"
        )
        for note in report.notes:
            output.say(note)
        if report.in_use:
            output.notice(f"in use by {report.in_use}: run this again when it is not")
        if verdict == "damaged":
            output.notice(f"`penstock salvage {arguments.dir} OUT` copies what is whole")
    return 1 if report.verdict == Verdict.DAMAGED else 0


def existing(folder: Path) -> Path:
    """The folder, when there is one. Raises NotAStore: looking must not create it."""
    if not folder.is_dir():
        raise NotAStore(f"there is no folder {folder}")
    return folder


COMMAND = Command(
    "verify",
    "read a whole store and say what is right and wrong with it",
    "verify ./penstock-data\nverify orders.tar",
    add,
    run,
    details="Nothing is changed. `torn` is the unconfirmed end that a crash leaves: the next\n"
    "start sets it aside. `damaged` had been confirmed once, and gives exit code 1.",
)
