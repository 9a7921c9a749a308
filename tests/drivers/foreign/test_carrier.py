"""What the inner port says by itself."""

import builtins
import importlib
import sys
from typing import Any

import pytest

from penstock.drivers.foreign.carrier import Traits, missing
from penstock.vocabulary.errors import Unsupported


def test_traits_begin_with_a_broker_that_does_it_all() -> None:
    traits = Traits()
    assert (traits.has_leases, traits.has_release, traits.counts_attempts) == (True, True, True)
    assert traits.release_s_max is None


def test_a_missing_package_says_what_to_install() -> None:
    assert "pip install 'penstock[nats]'" in str(missing("nats", "nats-py"))


@pytest.mark.parametrize(
    ("sdk", "module", "extra"),
    [
        ("redis", "penstock.drivers.redis.carrier", "redis"),
        ("nats", "penstock.drivers.nats.connection", "nats"),
    ],
)
def test_a_driver_without_its_sdk_says_what_to_install(
    sdk: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.partition(".")[0] == sdk:
            raise ImportError(name)
        return before(name, *rest, **more)

    monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(Unsupported, match=f"penstock\\[{extra}\\]"):
        importlib.import_module(module)
