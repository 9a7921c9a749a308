"""What recovery and verify found, in words a person can act on."""

import msgspec


class Damage(msgspec.Struct, frozen=True):
    """A stretch of the log that was durable once and cannot be read now."""

    segment: int
    file: str
    start: int
    end: int
    lost_records: int | None
    """None when the log does not tell how many there were."""
    rescued_records: int

    def __str__(self) -> str:
        lost = "an unknown number of" if self.lost_records is None else str(self.lost_records)
        return (
            f"{self.file} bytes {self.start}–{self.end}: {lost} record(s) lost, "
            f"{self.rescued_records} kept"
        )


class Report(msgspec.Struct):
    """One run of recovery."""

    snapshot: int | None = None
    groups: int = 0
    records: int = 0
    log_bytes: int = 0
    is_clean: bool = False
    torn_bytes: int = 0
    torn_file: str | None = None
    damages: list[Damage] = []
    notes: list[str] = []

    @property
    def is_damaged(self) -> bool:
        """True when something that had been durable is gone or had to be worked around."""
        return bool(self.damages)
