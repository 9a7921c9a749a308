import subprocess
import sys

PROGRAM = """
import sys
import pyarrow as pa
from penstock.pipeline.arrow import leave_pandas_alone

leave_pandas_alone()
assert pa.array(["a", None]).null_count == 1
assert "pandas" not in sys.modules
frame = pa.table({"a": [1, 2]}).to_pandas()
assert "pandas" in sys.modules
assert list(frame["a"]) == [1, 2]
leave_pandas_alone()
assert sys.modules["pandas"] is not None
"""


def test_pandas_is_imported_only_when_somebody_asks_for_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
