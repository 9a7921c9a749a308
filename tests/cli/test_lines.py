import asyncio
import io
import os
import sys
from pathlib import Path

import pytest

from penstock.cli import lines
from penstock.vocabulary.errors import TooLarge
from penstock.vocabulary.limits import BODY_BYTES_MAX


async def collect(path: Path | None) -> list[bytes]:
    return [line async for block in lines.batches(path) for line in block]


def test_chunks_may_end_anywhere() -> None:
    text = b"one\ntwo\r\n\nfour"
    for cut in range(len(text)):
        found = lines.split(iter([text[:cut], text[cut:]]), "x")
        assert [line for block in found for line in block] == [b"one", b"two", b"", b"four"]


def test_blocks_are_not_larger_than_a_batch() -> None:
    sizes = [len(block) for block in lines.split(iter([b"x\n" * 2_500]), "x")]
    assert sizes == [1_000, 1_000, 500]


def test_a_line_without_an_end_is_refused_before_memory_runs_out() -> None:
    endless = iter(lambda: b"x" * 1_000_000, b"")
    with pytest.raises(TooLarge, match="input has a line of more than"):
        list(lines.split(endless, "input"))


def test_a_file_is_read_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(b"a\nb\n" * 3_000)
    assert asyncio.run(collect(path)) == [b"a", b"b"] * 3_000


def test_a_missing_file_is_an_error_for_the_reader(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        asyncio.run(collect(tmp_path / "missing"))


def test_standard_input_may_be_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"a\nb")
    os.close(writer)
    with os.fdopen(reader) as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        assert asyncio.run(collect(None)) == [b"a", b"b"]


def test_a_line_is_handed_over_before_the_pipe_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async def follow(writer: int) -> list[bytes]:
        os.write(writer, b"first\n")
        found = []
        async for block in lines.batches(None):
            found += block
            if len(found) == 1:
                os.write(writer, b"second\n")
                os.close(writer)
        return found

    reader, writer = os.pipe()
    with os.fdopen(reader) as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        assert asyncio.run(follow(writer)) == [b"first", b"second"]


def test_standard_input_may_be_an_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"whole\ninput")))
    assert lines.read_all(None) == b"whole\ninput"


def test_a_body_over_the_limit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(bytes(BODY_BYTES_MAX + 1))
    with pytest.raises(TooLarge, match="--lines"):
        lines.read_all(path)
