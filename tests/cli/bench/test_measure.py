from pathlib import Path

from penstock.cli.bench import measure


def test_percentiles_of_a_hundred() -> None:
    found = measure.latency([float(n) for n in range(100, 0, -1)])
    assert (found.count, found.p50, found.p90, found.p99, found.worst) == (100, 51, 91, 100, 100)


def test_one_value_is_every_percentile() -> None:
    found = measure.latency([0.5])
    assert found.p50 == found.p999 == found.worst == 0.5


def test_this_process_uses_memory() -> None:
    assert 1_000_000 < measure.settled_bytes() < 10_000_000_000


def test_a_folder_is_as_large_as_its_files(tmp_path: Path) -> None:
    (tmp_path / "segment-00000001").write_bytes(bytes(1_000))
    (tmp_path / "other").write_bytes(bytes(50))
    assert measure.segment_bytes(tmp_path) == 1_000
    assert measure.other_bytes(tmp_path) == 50
    assert measure.segment_bytes_max(tmp_path) == 1_000


def test_bodies_are_distinct_and_of_one_size() -> None:
    found = measure.bodies(50, 100)
    assert len(set(found)) == 50
    assert {len(body) for body in found} == {100}
