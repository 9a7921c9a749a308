"""Spark's Python daemon with what every worker imports in it already.

Spark forks its Python workers from a daemon, and each of them imports what it needs on its own:
more than a second of processor, paid again by every worker when a query starts, and after each
minute without work, when Spark ends those that are idle. Here they are born with it. What starts
threads of its own is left out, because a thread does not come along into a fork; the exception are
those of jemalloc, which knows of forks and begins anew.
"""

import gc
from importlib import import_module
from typing import Final

NEEDED: Final = (
    "pyspark.worker",
    "penstock.pipeline.datasets.pms",
    "penstock.pipeline.datasets.mppt",
    "penstock.pipeline.datasets.inverter",
    "penstock.pipeline.spark.kafka_rows",
    "penstock.pipeline.spark.workers",
)


def prepare() -> None:
    """Imports it all, for good: what is collected later leaves it alone, in every fork."""
    for name in NEEDED:
        import_module(name)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    from pyspark.daemon import manager

    prepare()
    manager()
