"""`penstock restore`: a store from a backup."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

import msgspec

from penstock.cli import values
from penstock.cli.command import Command
from penstock.cli.output import GREEN, Output, moment, plural, size
from penstock.cli.progress import Progress
from penstock.cli.watching import megabytes
from penstock.vocabulary.errors import BackupDamaged


def add(parser: ArgumentParser) -> None:
    """Adds the arguments of this command."""
    parser.add_argument("backup", metavar="OUT", type=Path, help="what `penstock backup` wrote")
    parser.add_argument("dir", metavar="DIR", type=values.folder, help="a new or empty folder")


def run(arguments: Namespace, output: Output) -> int:
    """Makes the store. Nothing is left when the backup is not whole."""
    from penstock.journal.restoring import backup_bytes, restore

    path: Path = arguments.backup
    check_there(path)
    with Progress(output, f"reading {path}", megabytes(backup_bytes(path))) as progress:
        manifest = restore(path, arguments.dir, lambda count: progress.add(megabytes(count)))
    used = sum(row.used for row in manifest.files)
    if output.is_json:
        rows = msgspec.to_builtins(manifest)
        output.document({"dir": str(arguments.dir), "bytes": used, **rows})
    else:
        output.say(
            f"{arguments.dir}: {plural(len(manifest.files), 'file')}, {size(used)}, as of "
            f"{moment(manifest.started_at)}"
        )
        output.notice(f"to look at it: penstock stats --url file:{arguments.dir}")
    return 0


def verify(path: Path, output: Output) -> int:
    """What `penstock verify` says of a backup. Raises BackupDamaged."""
    from penstock.journal.restoring import backup_bytes, check_backup

    with Progress(output, f"reading {path}", megabytes(backup_bytes(path))) as progress:
        manifest = check_backup(path, lambda count: progress.add(megabytes(count)))
    if output.is_json:
        output.document({"verdict": "ok", **msgspec.to_builtins(manifest)})
    else:
        rows = [(row.name, "ok", f"{row.used:,}") for row in manifest.files]
        output.table(["FILE", "VERDICT", ">BYTES"], rows)
        output.say()
        output.say(
            f"{output.paint('ok', GREEN)}: a whole backup, as of {moment(manifest.started_at)}"
        )
    return 0


def check_there(path: Path) -> None:
    """Raises BackupDamaged when there is nothing."""
    if not path.exists():
        raise BackupDamaged(f"there is no backup {path}")


COMMAND = Command(
    "restore",
    "make a store from a backup",
    "restore orders.tar ./restored\nrestore orders.tar ./restored --json",
    add,
    run,
    details="Everything is checked against the digests of the backup before DIR gets its name.\n"
    "`penstock verify OUT` checks a backup without restoring it.",
)
