"""A backup: which files of a store it has, and the manifest that proves it whole.

A backup is a tar archive or a folder. It holds the store's files, each without the zeros at its
end, and last of all `manifest.json`: a backup without one was never finished. Names are checked
against a short list of forms, so that no archive can name a file outside the folder it goes to.
"""

import re
from typing import Final

import msgspec

from penstock.vocabulary.errors import BackupDamaged
from penstock.vocabulary.limits import MIB

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
MANIFEST_BYTES_MAX: Final = 64 * MIB
FILE_BYTES_MAX: Final = 1 << 40
PIECE_BYTES: Final = 1 * MIB
"""Read from a broker at a time."""
NAMES: Final = re.compile(r"superblock|snapshot-\d{12}|segment-\d{8,12}")


class BackupFile(msgspec.Struct, frozen=True):
    """One file of a store."""

    name: str
    size: int
    """Its size in a store."""
    used: int
    """Its bytes in the backup; zeros follow in a store."""


class BackupPlan(msgspec.Struct, frozen=True):
    """What a broker will give to whoever copies it; held while it is being read."""

    backup: str
    """The name the broker knows this backup by."""
    store_id: str
    position: int
    """Everything durable below this place of the log is in the backup."""
    started_at: float
    files: list[BackupFile]

    @property
    def total(self) -> int:
        """Bytes to copy."""
        return sum(file.used for file in self.files)


class ManifestRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file of a backup, with what proves it."""

    name: str
    size: int
    used: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The last file of a backup."""

    penstock_backup: int
    """The version of this format."""
    store_id: str
    position: int
    started_at: float
    files: list[ManifestRow]


def encode_manifest(manifest: Manifest) -> bytes:
    """The manifest as JSON, for programs and for people who look into an archive."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"


def decode_manifest(data: bytes) -> Manifest:
    """A manifest whose every file has a name and a size a store may have. Raises BackupDamaged."""
    try:
        head = msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise BackupDamaged(f"{MANIFEST} is not JSON: {error}") from error
    version = head.get("penstock_backup") if isinstance(head, dict) else None
    if isinstance(version, int) and version > FORMAT:
        raise BackupDamaged(
            f"the backup has format {version}; this version of Penstock reads format {FORMAT}: "
            "install a newer Penstock to restore it"
        )
    try:
        manifest = msgspec.convert(head, Manifest)
    except msgspec.ValidationError as error:
        raise BackupDamaged(f"{MANIFEST} is not one of a backup: {error}") from error
    seen: set[str] = set()
    for row in manifest.files:
        check_name(row.name)
        if row.name in seen:
            raise BackupDamaged(f"{MANIFEST} names {row.name} twice")
        if not 0 <= row.used <= row.size <= FILE_BYTES_MAX:
            raise BackupDamaged(f"{MANIFEST}: {row.name} cannot use {row.used} of {row.size} bytes")
        seen.add(row.name)
    if "superblock" not in seen:
        raise BackupDamaged(f"{MANIFEST} names no superblock: this is not a whole store")
    return manifest


def check_name(name: str) -> None:
    """Raises BackupDamaged for a name that no file of a store has."""
    if name != MANIFEST and NAMES.fullmatch(name) is None:
        raise BackupDamaged(
            f"the backup names a file {name[:80]!r}, which no store has; nothing was restored"
        )
