"""Kind `key_shared` over many topics: the lines of all keys of all topics on one shelf."""

from collections.abc import Callable

from penstock.client.following import PatternDeliveries
from penstock.client.keyed import DeliveriesByKey, KeyedSettling
from penstock.client.received import Hold, ReceivedMessage
from penstock.client.settling import Settling
from penstock.vocabulary.claims import Revoked
from penstock.vocabulary.errors import UsageError


class KeyedPatternDeliveries(DeliveriesByKey, PatternDeliveries):
    """The messages of every topic that matches a pattern, those of each key in order."""

    _joined = 0

    def _settling(self, topic: str) -> KeyedSettling:
        self._joined += 1
        return KeyedSettling(
            topic, self._loop, self._wish.credit, is_push=self._is_push, shelf=self._shelf,
            home=self._joined,
        )  # fmt: skip

    def _find(self) -> bool:
        if self.settling.is_once:
            for leg in self._legs:
                assert isinstance(leg.settling, KeyedSettling)
                leg.settling.finish_handed()
        return super()._find()

    def _chosen(self, is_wanted: Callable[[str], bool]) -> ReceivedMessage | None:  # noqa: ARG002 - of none
        raise UsageError(
            "messages of kind 'key_shared' come in the order of their keys: receive them all"
        )

    def arrived(self, hold: Hold) -> None:
        """Messages of a leg arrived, and are on the shelf."""
        self._wake(hold.count)
        if self._renewing is None:
            self._renew_later()

    def revoked(self, settling: Settling, news: Revoked) -> None:
        """The broker took messages of a leg back."""
        assert isinstance(settling, KeyedSettling)
        settling.on_revoked(news)
        self._wake(len(self._waiters))
