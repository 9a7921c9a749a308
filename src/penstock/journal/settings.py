"""Sizes and intervals of the journal; tests make them tiny."""

from typing import Final

import msgspec

from penstock.vocabulary.limits import MIB

GROUP_BYTES_MAX: Final = 4 * MIB


class JournalSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the journal uses its disk."""

    segment_bytes_min: int = 1 * MIB
    segment_bytes_max: int = 64 * MIB
    snapshot_bytes: int = 256 * MIB
    """Log written between two snapshots at most."""
    reserve_bytes: int = 256 * MIB
    """Publishes are refused while less space is free."""
    cache_bytes: int = 64 * MIB
    """Recently written records kept in memory for readers."""
    spare_count: int = 2
    """Free segments kept for reuse."""
    is_zeroing: bool = True
    """Write new segments full of zeros before use; off in tests that count operations."""
