"""The scheme of a URL chooses the driver; what cannot be opened is named with a hint."""

import asyncio
import re
import traceback
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.drivers.choose import check_url, open_driver
from penstock.vocabulary.errors import InvalidArgument
from tests.drivers.remote.rig import Served


@pytest.mark.parametrize("url", ["file:data", "file:./data", "memory:", "memory:shared"])
def test_urls_of_embedded_brokers_are_accepted(url: str) -> None:
    assert check_url(url) == url.partition(":")[0]


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("fiel:./data", "did you mean 'file:./data'"),
        ("File:./data", "did you mean 'file:./data'"),
        ("memroy:", "did you mean 'memory:'"),
        ("zzz:data", "known: penstock://HOST, file:DIR, memory:"),
        ("mqtts://h", "for TLS write 'mqtt://h:8883?tls=true'"),
        ("localhost:8001", "write for example 'penstock://localhost:8001'"),
        ("data", "write 'file:data'"),
        ("", "must be text"),
        ("file:data?segment_mb=1", "options"),
        ("nats:h", "write 'nats://HOST'"),
        ("rediz://u:hidden@h", "did you mean 'redis://***@h'"),
        ("redis://h?fsync=1", "no option 'fsync'"),
    ],
)
def test_a_wrong_url_is_refused_with_a_hint(url: str, hint: str) -> None:
    with pytest.raises(InvalidArgument, match=re.escape(hint)):
        check_url(url)


@given(
    st.sampled_from(
        ["redis", "rediz", "penstock", "mqtt", "file", "kafka", "pubsub", "user", "amqp", "http"]
    ),
    st.sampled_from(["://", ":", ":/", "//", ""]),
    st.text("/?#@:&=% \n'[]ab1", max_size=4),
    st.text("/?#@:&=% \n'[]ab1", max_size=4),
    st.sampled_from(["h", "h:1", "h:bad", "h/x?y=1", "[::1]", ""]),
)
def test_a_secret_is_never_told(
    scheme: str, mark: str, before: str, after: str, place: str
) -> None:
    url = f"{scheme}{mark}u:{before}s3cr3t{after}@{place}"
    if scheme == "file" and not mark.startswith("://"):
        return  # a folder, which has nobody who signs in
    try:
        check_url(url)
    except InvalidArgument as error:
        told = "".join(traceback.format_exception(error)) + repr(error)
        assert "s3cr3t" not in told
    else:
        assert scheme != "penstock"


def test_a_server_is_named_by_its_host() -> None:
    assert check_url("penstock://127.0.0.1") == "penstock"
    with pytest.raises(InvalidArgument, match="names no host"):
        check_url("penstock:")


def test_something_that_is_not_text_is_no_url() -> None:
    with pytest.raises(InvalidArgument, match="not 5"):
        check_url(5)  # type: ignore[arg-type]


def test_each_scheme_opens_its_driver(tmp_path: Path) -> None:
    async def scenario() -> None:
        for url in (f"file:{tmp_path / 'store'}", "memory:", served.url):
            driver = await open_driver(url)
            assert driver.capabilities.scheme == url.partition(":")[0]
            await driver.close()

    with Served() as served:
        asyncio.run(scenario())
