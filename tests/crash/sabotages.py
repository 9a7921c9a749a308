"""Bugs planted on purpose, one line each, and the stage that must notice.

A harness is worth what it catches. Each sabotage changes one thing for the length of a `with`
block; its stage passes on the honest code and must fail on this one.
"""

from tests.crash import (
    sabotages_delivery,
    sabotages_disk,
    sabotages_features,
    sabotages_growth,
    sabotages_recovery,
)
from tests.crash.sabotage import SABOTAGES, Sabotage

__all__ = ["MODULES", "SABOTAGES", "Sabotage"]

MODULES = (
    sabotages_delivery,
    sabotages_disk,
    sabotages_features,
    sabotages_growth,
    sabotages_recovery,
)
"""Importing them registers what they plant."""
