"""Without its SDK, or with a protobuf that is too new for it, a URL says what to do."""

import asyncio
import sys
from pathlib import Path

import pytest

import penstock
from penstock.vocabulary.errors import Unsupported


@pytest.fixture(autouse=True)
def _no_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name.split(".")[0] == "kubemq" or name.startswith("penstock.drivers.kubemq."):
            monkeypatch.delitem(sys.modules, name)


async def _open() -> None:
    await penstock.connect("kubemq://127.0.0.1").open()


def test_a_missing_sdk_is_named_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubemq", None)
    with pytest.raises(Unsupported, match=r"'kubemq', which is not installed.*own.*pip install"):
        asyncio.run(_open())


def test_a_protobuf_that_is_too_new_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package = tmp_path / "kubemq" / "grpc"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    refusal = "class VersionError(Exception):\n    pass\n\n\nraise VersionError('too new')\n"
    (package / "kubemq_pb2.py").write_text(refusal, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(Unsupported, match=r"does not load here \(VersionError\).*protobuf below 6"):
        asyncio.run(_open())
