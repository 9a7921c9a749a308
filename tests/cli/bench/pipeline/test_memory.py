import os
import subprocess
import sys
import time

import pytest

from penstock.cli.bench.pipeline.memory import Process, Watch, descendants, processes
from penstock.pipeline.spark import daemon as own

PROGRAM = "import sys; held = bytearray(64 << 20); print('ready', flush=True); sys.stdin.read()"


def test_a_worker_below_this_process_is_seen() -> None:
    words = [sys.executable, "-c", PROGRAM, "pyspark.daemon"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        watch = Watch()
        for _ in range(2):
            watch.worker = 0
            with watch:
                while not watch.worker:
                    time.sleep(0.01)
        assert os.getpid() in {each.pid for each in processes()}
        child.stdin.close()
    assert watch.worker > 64 << 20


@pytest.mark.parametrize("daemon", [b"pyspark.daemon", own.__name__.encode()])
def test_the_highest_figure_stays_and_strangers_are_left_out(daemon: bytes) -> None:
    driver, worker = b"java org.apache.spark.deploy.SparkSubmit", b"python\0-m\0" + daemon
    watch = Watch()
    watch.look(
        [Process(2, 1, driver, 900), Process(3, 2, worker, 70), Process(4, 3, worker, 80)], 1
    )
    watch.look(
        [Process(2, 1, driver, 800), Process(3, 2, worker, 75), Process(9, 8, worker, 999)], 1
    )
    assert (watch.driver, watch.worker) == (900, 80)
    assert descendants([Process(2, 1, b"", 0), Process(3, 2, b"", 0)], 2) == {3}
