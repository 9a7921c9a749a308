import asyncio
from pathlib import Path

from penstock.cli.bench.pipeline import lane


def test_every_reading_is_stored_and_counted(tmp_path: Path) -> None:
    (tmp_path / "warm").mkdir()
    found = asyncio.run(lane.measure(tmp_path, 3_000))
    assert found["rows"] == 3_000
    assert found["rows_per_s"] > 0
    assert found["rows_per_cpu_s"] > 0
    assert found["resident_bytes_max"] >= found["resident_bytes_before"] > 0
    assert list((tmp_path / "warehouse").rglob("*.parquet"))
