"""Multicast subscriptions at the broker: joining, and ending members that stay away."""

from typing import Any, Final

import msgspec

from penstock.broker.engine import Engine
from penstock.delivery import counts, members, multicast, patterns
from penstock.delivery.state import State, Subscription, Topic
from penstock.vocabulary.errors import InvalidArgument
from penstock.vocabulary.message import Kind
from penstock.vocabulary.policy import SubscriptionPolicy

CHECK_MS: Final = 60_000
"""How often members are looked at: they are kept for days."""


class Multicasting:
    """The part of a Broker that knows multicasts."""

    engine: Engine
    state: State
    _members_at: int = 0

    def join_multicast(
        self, topic: Topic, name: str, policy: SubscriptionPolicy, starts: tuple[int, ...],
        consumer: str | None,
    ) -> Subscription:  # fmt: skip
        """The member of a named consumer, or an ephemeral one for None. Under the lock."""
        wall = self.engine.clock.wall()
        record, member = multicast.decide_join(
            self.state, topic, name, policy, consumer, starts, wall
        )
        if record is not None:
            self.engine.submit(record, None)
        return member

    def forget_members(self, wall: int) -> None:
        """Ends members nobody was attached to for too long. Under the lock."""
        if not self.state.multicasts or abs(wall - self._members_at) < CHECK_MS:
            return
        if self.engine.retaining.time.is_paused:
            return
        self._members_at = wall
        for record in patterns.decide_forgotten(self.state, wall):
            self.engine.submit(record, None)

    def describe_multicast(self, subscription: Subscription, row: dict[str, Any]) -> dict[str, Any]:
        """The row of a multicast: its members' counts in sum, and what was dropped with old ones.

        Other rows stay as they are.
        """
        if not subscription.is_parent:
            return row
        found = members.members_of(subscription)
        total = count_whole(subscription, self.engine.clock.wall())
        return {
            **row,
            "members": sorted(each.name for each in _counted(subscription)),
            "consumers": [each.name for member in found for each in member.connected],
            **msgspec.to_builtins(total),
            "unexplained": counts.unexplained(total),
        }


def count_whole(subscription: Subscription, wall: int) -> counts.Counts:
    """The counts of a subscription; of a multicast, those of its members and of former ones."""
    if not subscription.is_parent:
        return counts.count(subscription, wall)
    dropped = subscription.forgotten
    own = counts.Counts(attached=dropped, dropped=dropped)
    return sum((counts.count(each, wall) for each in _counted(subscription)), own)


def _counted(parent: Subscription) -> list[Subscription]:
    found = members.members_of(parent)
    return [each for each in found if each.is_durable and not each.is_pending]


def check_multicast_start(policy: SubscriptionPolicy, start: Any) -> None:
    """Raises InvalidArgument for the start of a multicast: only its consumers have a place."""
    if policy.kind is Kind.MULTICAST and start is not None:
        raise InvalidArgument(
            "a multicast subscription has no start of its own: each consumer starts where its "
            "first subscribe(…, start=…) says, or at the latest"
        )


def default_start(name: str | None, policy: SubscriptionPolicy | None) -> str:
    """Where a consumer starts that does not say: shared work is not lost, news are new."""
    if name is None or (policy is not None and policy.kind is Kind.MULTICAST):
        return "latest"
    return "earliest"
