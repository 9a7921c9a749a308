"""The blocking twin of a reader has the same names and needs no loop."""

import inspect
from pathlib import Path

import pytest

from penstock.client.blocking import connect_blocking
from penstock.client.blocking_reader import BlockingReader
from penstock.client.reader import Reader
from penstock.vocabulary.errors import NotPlanned, PositionNotHeld, ReaderFenced


def public(kind: type) -> dict[str, list[str]]:
    return {
        name: list(inspect.signature(value).parameters)
        for name, value in vars(kind).items()
        if not name.startswith("_") and inspect.isfunction(value)
    }


def test_the_twin_has_the_same_methods_with_the_same_parameters() -> None:
    assert public(BlockingReader) == public(Reader)


def test_a_script_reads_a_topic(tmp_path: Path) -> None:
    with connect_blocking(f"file:{tmp_path / 'store'}") as client:
        reader = client.reader("orders", "tables", owner="run-1")
        assert (reader.topic, reader.name, reader.owner) == ("orders", "tables", "run-1")
        client.publish_many("orders", [b"%d" % n for n in range(5)])
        assert reader.plan(3) == reader.planned() == [(0, 0, 3)]
        assert [message.body for message in reader.read(0, 0, 3)] == [b"0", b"1", b"2"]
        assert [batch.bodies for batch in reader.batches(0, 1, 3, max_bytes=100)] == [[b"1", b"2"]]
        with pytest.raises(NotPlanned):
            reader.commit({0: 4})
        reader.commit({0: 3})
        assert reader.progress() == {0: 3}
        with pytest.raises(PositionNotHeld):
            next(reader.read(0, 0, 1))
        assert reader.plan(9, after={0: 4}) == [(0, 4, 5)]
        client.reader("orders", "tables", owner="run-2").release(force=True)
        client.reader("orders", "tables", owner="run-3")
        with pytest.raises(ReaderFenced):
            reader.plan()
