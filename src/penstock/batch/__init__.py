"""Many messages as bytes, column by column: the one thing that travels everywhere unchanged."""

from penstock.batch.encode import (
    Columns,
    encode_columns,
    encode_many,
    encode_one,
    encode_plain,
    encode_short,
)
from penstock.batch.view import Batch

__all__ = [
    "Batch",
    "Columns",
    "encode_columns",
    "encode_many",
    "encode_one",
    "encode_plain",
    "encode_short",
]
