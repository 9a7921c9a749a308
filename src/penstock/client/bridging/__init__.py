"""Copying a topic from one broker to another: `penstock bridge FROM TO`."""

from penstock.client.bridging.copying import Bridged, Wanted, bridge
from penstock.client.bridging.verify import Difference, Verified

__all__ = ["Bridged", "Difference", "Verified", "Wanted", "bridge"]
