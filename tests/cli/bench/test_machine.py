from pathlib import Path

from penstock.cli.bench import machine


def test_a_figure_says_what_it_was_measured_on(tmp_path: Path) -> None:
    found = machine.describe(tmp_path)
    assert {"cpus", "cpu", "kernel", "python", "penstock", "file_system", "device"} <= set(found)
    assert all(value != "" for value in found.values())


def test_memory_has_no_file_system() -> None:
    assert "file_system" not in machine.describe(None)


def test_the_innermost_mount_counts() -> None:
    assert machine.file_system(Path("/proc/self"))[0] == "proc"
