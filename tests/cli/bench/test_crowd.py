from penstock.cli.bench import crowd
from penstock.cli.bench.plan import Plan


def test_every_member_of_the_crowd_gets_its_own() -> None:
    found = crowd.connections(Plan(server="memory:crowd", messages=20, seconds=0.2, callers=7))
    assert (found["connections"], found["topics"], found["lost"]) == (20, 20, 0)
    assert found["messages"] == found["latency"].count > 0
