import json
from typing import Any

import pytest

from penstock.pipeline import messages
from penstock.pipeline.mending import mended
from penstock.pipeline.refusals import FixFailed

HEADERS = {
    "source": "site", "content-type": "text/csv", "penstock-id": "x",
    messages.REASONS: '[{"path":"","rule":"csv.row","value":"1,2"}]',
}  # fmt: skip


def test_without_a_function_it_goes_as_it_was() -> None:
    found = mended(None, b"1,2", HEADERS, "k", "q/0:1")
    assert found is not None
    assert (found.body, found.key) == (b"1,2", "k")
    assert found.headers == {"source": "site", "content-type": "text/csv"}


@pytest.mark.parametrize(
    ("body", "given", "wanted"),
    [
        (b' {"a":1}', "text/csv", "application/json"),
        (b"1,2,3", "text/csv", "text/csv"),
        (b"{}", "application/json; charset=utf-8", "application/json; charset=utf-8"),
    ],
)
def test_the_content_type_follows_the_body(body: bytes, given: str, wanted: str) -> None:
    found = mended(lambda _body, _reasons: body, b"", {"content-type": given}, None, "q/0:1")
    assert found is not None
    assert (found.body, found.headers) == (body, {"content-type": wanted})


def test_the_reasons_are_told_and_none_gives_up() -> None:
    seen: list[Any] = []

    def fix(body: bytes | None, reasons: list[Any]) -> None:
        seen.append((body, [each.rule for each in reasons]))

    assert mended(fix, b"1,2", HEADERS, None, "q/0:1") is None
    assert seen == [(b"1,2", ["csv.row"])]


def test_a_function_that_fails_or_gives_no_bytes_is_named_with_the_message() -> None:
    with pytest.raises(FixFailed, match=r"at q/0:7 with JSONDecodeError"):
        mended(lambda body, _: json.loads(body or b""), b"x", {}, None, "q/0:7")
    with pytest.raises(FixFailed, match=r"gave dict at q/0:7"):
        mended(lambda _, __: {}, b"x", {}, None, "q/0:7")  # type: ignore[arg-type, return-value]
    with pytest.raises(FixFailed, match=r"gave 2000000 bytes at q/0:7"):
        mended(lambda _, __: b"x" * 2_000_000, b"x", {}, None, "q/0:7")
