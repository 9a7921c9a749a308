"""Bytes as another version of Penstock would have written them."""

from xxhash import xxh3_64_intdigest


def with_version(
    data: bytes,
    *,
    major: int | None = None,
    minor: int | None = None,
    features: int | None = None,
    sum_at: int,
) -> bytes:
    """The same header with other version fields and a checksum that fits.

    Magic (8), major (2), minor (2), required features (4), …, checksum at `sum_at`.
    """
    changed = bytearray(data)
    for at, size, value in ((8, 2, major), (10, 2, minor), (12, 4, features)):
        if value is not None:
            changed[at : at + size] = value.to_bytes(size, "little")
    checksum = xxh3_64_intdigest(bytes(changed[:sum_at]))
    changed[sum_at : sum_at + 8] = checksum.to_bytes(8, "little")
    return bytes(changed)
