"""The limits that hold unless somebody says otherwise."""

from penstock.server.frames_limits import FramesLimits


def test_the_defaults_are_those_of_the_checklist() -> None:
    limits = FramesLimits()
    assert (limits.handshake_s, limits.frame_s, limits.write_s) == (2.0, 10.0, 10.0)
    assert limits.rate_bytes_min == 1024
    assert limits.pending_bytes_max == 8 * 1024 * 1024
    assert limits.attachments_max == 1_000
    assert limits.connections_max >= 10_000
