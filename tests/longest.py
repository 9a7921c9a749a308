"""The files of tests that take minutes, in the order in which they begin.

They are begun before all others, so that none of them runs alone at the end while the other test
processes have nothing left to do. Those that start Spark have others between them: several at once
are more than a small machine has time for.
"""

from typing import Final

FILES: Final = (
    "pipeline/spark/test_query.py",
    "crash/test_damage.py",
    "crash/test_swarm_keeping.py",
    "crash/test_swarm_changing.py",
    "pipeline/spark/test_killing.py",
    "model/test_model.py",
    "crash/test_swarm_settling.py",
    "pipeline/spark/test_kafka_feed.py",
    "crash/test_faults.py",
    "contracts/test_kafka_contract.py",
    "pipeline/spark/test_source.py",
    "crash/test_swarm_moving.py",
    "crash/test_kill.py",
    "cli/test_pipeline_spark.py",
    "crash/test_swarm_given.py",
    "server/test_kill_server.py",
    "pipeline/test_flow.py",
    "contracts/test_desk_contract.py",
    "cli/test_bridge_landing.py",
)
