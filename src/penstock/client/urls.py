"""Whether a client could be made of a URL, for those who only write it down."""

from penstock.drivers import check_url

__all__ = ["check_url"]
