"""Client ids that are in use."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.drivers.mqtt import slots
from penstock.vocabulary.errors import StorageError, SubscriptionInUse

HOLD = """
import sys
from penstock.drivers.mqtt import slots
slot = slots.take("mqtt://h:1", "billing.0")
print("taken" if slot is not None else "refused", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)


def test_a_slot_is_taken_once_and_can_be_taken_again() -> None:
    first = slots.take("mqtt://h:1", "billing.0")
    assert first is not None
    assert slots.take("mqtt://h:1", "billing.0") is None
    for broker, id in (("mqtt://h:2", "billing.0"), ("mqtt://h:1", "billing.1")):
        other = slots.take(broker, id)
        assert other is not None
        other.free()
    first.free()
    first.free()
    again = slots.take("mqtt://h:1", "billing.0", 3)
    assert again is not None
    assert (again.client_id, again.number) == ("billing.0", 3)
    again.free()


def test_the_slot_of_a_killed_process_is_free() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env=os.environ,
    )  # fmt: skip
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"taken\n"
        assert slots.take("mqtt://h:1", "billing.0") is None
        child.kill()
    slot = slots.take("mqtt://h:1", "billing.0")
    assert slot is not None
    slot.free()


def test_a_folder_that_cannot_be_used_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with pytest.raises(StorageError, match="set TMPDIR"):
        slots.take("mqtt://h:1", "billing.0")
    assert isinstance(slots.in_use("x"), SubscriptionInUse)
