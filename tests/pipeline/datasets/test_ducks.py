import subprocess
import sys

import duckdb
import pytest

from penstock.pipeline.datasets import ducks

FORKING = """
import os, sys, threading
from penstock.pipeline.datasets import ducks

def parse():
    with ducks.borrowed() as connection:
        assert connection.execute("select 42").fetchall() == [(42,)]

def work():
    parse()
    done.set()
    going.wait()

parse()
done, going = threading.Event(), threading.Event()
threading.Thread(target=work, daemon=True).start()
done.wait()
child = os.fork()
parse()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_child_of_a_fork_parses_and_ends_in_order() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKING], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_connection_is_used_again_by_the_next_and_by_nobody_after_a_failure() -> None:
    with ducks.borrowed() as one, ducks.borrowed() as other:
        assert one is not other
    with ducks.borrowed() as again:
        assert again is one
    with pytest.raises(duckdb.Error), ducks.borrowed() as failed:
        failed.execute("this is no SQL")
    assert failed is one
    with ducks.borrowed() as last:
        assert last is other
