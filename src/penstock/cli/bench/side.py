"""One side of a comparison: a broker behind its own client, given the same work as the others.

A Penstock URL is served by `ours`; the sides of other brokers live in `benchmarks/` of the source
tree, one module each (`nats_side.py`, `redis_side.py`, …), with a function `side(plan)`.
"""

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

import penstock
from penstock.cli.bench.plan import Plan
from penstock.vocabulary.credentials import without_credentials
from penstock.vocabulary.errors import PenstockError

OURS: Final = ("file", "memory", "penstock")
OTHERS: Final = ("nats", "redis", "kafka")
SCHEMES: Final = (*OURS, *OTHERS)


class NoSide(PenstockError):
    """Nothing here can measure this URL."""

    code = "bench-no-side"


class Tally:
    """What a consumer has taken, and when it may stop."""

    def __init__(self, arrived: Callable[[bytes], None] | None = None) -> None:
        self.taken = 0
        """Messages taken and acked; the consumer counts them."""
        self.wanted = float("inf")
        """The consumer ends when it has taken so many."""
        self.arrived = arrived
        """Called with each body, when not None."""


class Side(Protocol):
    """A broker as a measurement sees it. Every publish returns when the broker has confirmed it."""

    in_flight: int
    """Batches under way at once at which this side is fastest."""

    async def open(self) -> None:
        """Connects, and makes a topic and a subscription for this measurement alone."""
        ...

    async def close(self) -> None:
        """Removes them and disconnects."""
        ...

    async def publish(self, body: bytes) -> None:
        """Publishes one message."""
        ...

    async def publish_many(self, bodies: Sequence[bytes]) -> None:
        """Publishes a batch, as users of this broker do when they want speed."""
        ...

    async def consume(self, tally: Tally) -> None:
        """Takes messages and acks each, until the tally has what it wants and acks are there."""
        ...

    async def about(self) -> dict[str, str]:
        """Versions of server and client, and how durable a confirmed message is."""
        ...


def scheme_of(url: str) -> str:
    """`nats` of `nats://…` and of `nats:`."""
    return url.partition(":")[0]


def side_of(plan: Plan) -> Side:
    """The side the plan's URL names. Raises NoSide."""
    scheme = scheme_of(plan.url)
    if scheme in OURS:
        from penstock.cli.bench.ours import Ours

        return Ours(plan)
    return _load(scheme, plan)


def _load(scheme: str, plan: Plan) -> Side:
    if scheme not in OTHERS:
        shown = without_credentials(plan.url)
        raise NoSide(f"bench cannot measure {shown}: it knows {', '.join(SCHEMES)}")
    path = Path(penstock.__file__).parents[2] / "benchmarks" / f"{scheme}_side.py"
    if not path.is_file():
        raise NoSide(
            f"the {scheme} side lives in benchmarks/ of the source tree, which is not here: "
            "run bench from a checkout of Penstock"
        )
    spec = importlib.util.spec_from_file_location(f"benchmarks.{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except ModuleNotFoundError as error:
        raise NoSide(
            f"the {scheme} side needs the package {error.name!r}: pip install 'penstock[{scheme}]'"
        ) from error
    made: Side = module.side(plan)
    return made
