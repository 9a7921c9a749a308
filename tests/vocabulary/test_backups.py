import json

import pytest

from penstock.vocabulary.backups import (
    BackupFile,
    BackupPlan,
    Manifest,
    ManifestRow,
    check_name,
    decode_manifest,
    encode_manifest,
)
from penstock.vocabulary.errors import BackupDamaged

BLOCK = ManifestRow("superblock", 8192, 4608, "ab")
WHOLE = Manifest(1, "00", 7, 1.5, [BLOCK, ManifestRow("segment-00000001", 1 << 20, 512, "cd")])


def test_a_manifest_reads_as_it_was_written() -> None:
    assert decode_manifest(encode_manifest(WHOLE)) == WHOLE


def test_a_plan_knows_how_much_there_is() -> None:
    plan = BackupPlan("b", "00", 7, 1.5, [BackupFile("a", 10, 4), BackupFile("b", 10, 6)])
    assert plan.total == 10


@pytest.mark.parametrize(
    "name",
    [
        "../superblock", "/etc/passwd", "segment-1", "segment-00000001/x", "snapshot-1", "lock",
        "superblock\n", "", ".", "..", "segment-00000001\0", "SUPERBLOCK", "a" * 500,
    ],
)  # fmt: skip
def test_only_names_of_a_store_pass(name: str) -> None:
    with pytest.raises(BackupDamaged, match="which no store has"):
        check_name(name)


@pytest.mark.parametrize("name", ["superblock", "segment-00000001", "snapshot-000000000001"])
def test_names_of_a_store_pass(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"penstock_backup": 2}, "format 2"),
        ({"penstock_backup": "x"}, "not one of a backup"),
        ({"extra": 1}, "extra"),
        ({"files": []}, "no superblock"),
        ({"files": [{"name": "superblock", "size": 1, "used": 2, "sha256": ""}]}, "cannot use"),
        ({"files": [{"name": "../x", "size": 1, "used": 1, "sha256": ""}]}, "no store has"),
        ({"files": [{"name": "superblock", "size": 1, "used": 1, "sha256": ""}] * 2}, "twice"),
    ],
)
def test_a_manifest_that_is_wrong_is_refused(change: dict[str, object], text: str) -> None:
    wrong = {**json.loads(encode_manifest(WHOLE)), **change}
    with pytest.raises(BackupDamaged, match=text):
        decode_manifest(json.dumps(wrong).encode())


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"7", b"\xff"])
def test_bytes_that_are_no_manifest_are_refused(data: bytes) -> None:
    with pytest.raises(BackupDamaged):
        decode_manifest(data)
