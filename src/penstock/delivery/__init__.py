"""Every decision about who gets which message when. Pure: no clock, no disk, no network."""
