import subprocess
import sys

import pytest

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
MEMORY = """
import pyarrow as pa
from penstock.pipeline.arrow import reuse_memory

reuse_memory()
reuse_memory()
assert pa.default_memory_pool().backend_name == "system"
assert pa.array([1, 2]).to_pylist() == [1, 2]

"""


@pytest.mark.parametrize("program", [PROGRAM, MEMORY], ids=["pandas", "memory"])
def test_in_a_process_of_ours_pandas_waits_to_be_asked_for_and_memory_is_used_again(
    program: str,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
