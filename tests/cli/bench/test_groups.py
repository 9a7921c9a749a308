import functools
import threading
from pathlib import Path

from penstock.batch import encode_many
from penstock.broker.broker import Broker
from penstock.broker.mailbox import DIRECT
from penstock.cli.bench import groups
from penstock.journal.disk import FolderDisk


def _set(done: threading.Event, _answer: object) -> None:
    done.set()


def test_the_sizes_are_those_the_journal_wrote(tmp_path: Path) -> None:
    broker = Broker.open(FolderDisk(tmp_path / "store"))
    before = len(groups.group_sizes(tmp_path / "store"))
    for number in range(3):
        done = threading.Event()
        batch = encode_many([b"x" * 1_000] * 10)
        answered = functools.partial(_set, done)
        broker.publish("topic", 0, batch, 10, bytes(16), 1, number * 10, DIRECT, answered)
        assert done.wait(10)
    broker.close()
    sizes = groups.group_sizes(tmp_path / "store")
    assert len(sizes) >= before + 3
    assert sum(10_000 < size < 12_000 for size in sizes) == 3
    assert all(size % 512 == 0 for size in sizes)


def test_an_empty_folder_has_no_groups(tmp_path: Path) -> None:
    assert groups.group_sizes(tmp_path) == []
