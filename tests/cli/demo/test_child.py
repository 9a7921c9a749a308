import subprocess
import sys
from pathlib import Path

from penstock.cli.demo import child


def test_it_tells_what_was_confirmed_until_it_is_killed(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock.cli.demo.child", str(tmp_path / "data")],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(40)]
    process.kill()
    process.communicate()
    confirmed = [line.split()[1] for line in lines if line.startswith("confirmed ")]
    assert confirmed == [f"order-{n}" for n in range(1, len(confirmed) + 1)]
    acked = {line.split()[1] for line in lines if line.startswith("acked ")}
    assert acked <= {line.split()[1] for line in lines if line.startswith("acking ")}
    assert child.TOPIC == "orders"
