"""What can be said of a URL without a client, for those who only write it down."""

from penstock.drivers import check_url
from penstock.drivers.capabilities import MATRIX, Support

__all__ = ["check_url", "has_readers"]

_SAME = {"tcp": "mqtt"}


def has_readers(url: str) -> bool:
    """True when the broker of a URL has readers, which pipelines need."""
    scheme = check_url(url)
    column = MATRIX.get(_SAME.get(scheme, scheme), MATRIX["penstock"])
    return column["reader"].support is not Support.REFUSED
