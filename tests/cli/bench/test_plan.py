import msgspec
import pytest

from penstock.cli.bench.plan import Budget, Plan


def test_a_plan_survives_the_journey_to_a_child() -> None:
    plan = Plan(folder="/tmp/x", seconds=0.5, messages=7, keep_every=3, is_quick=True)
    assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan) == plan


def test_no_folder_is_a_broker_in_memory() -> None:
    assert Plan().url == "memory:bench"
    assert Plan(folder="/tmp/x").url == "file:/tmp/x"


@pytest.mark.parametrize(
    ("plan", "count"), [(Plan(), 100), (Plan(is_quick=True), 10), (Plan(messages=3), 3)]
)
def test_how_many(plan: Plan, count: int) -> None:
    assert plan.scaled(100, 10) == count


def test_a_budget_of_messages_is_used_up() -> None:
    budget = Budget(0.0, messages=25)
    assert [budget.take(10) for _ in range(4)] == [True, True, True, False]


def test_a_budget_of_time_ends() -> None:
    assert Budget(60.0).take(1)
    assert not Budget(0.0).take(1)
