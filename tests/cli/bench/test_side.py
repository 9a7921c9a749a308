from pathlib import Path

import pytest

import penstock
from penstock.cli.bench import side
from penstock.cli.bench.ours import Ours
from penstock.cli.bench.plan import Plan


@pytest.mark.parametrize("url", ["", "memory:x", "penstock://127.0.0.1:8001"])
def test_our_own_urls_have_our_side(url: str) -> None:
    assert isinstance(side.side_of(Plan(server=url)), Ours)


@pytest.mark.parametrize("scheme", side.OTHERS)
def test_others_are_loaded_from_the_source_tree(scheme: str) -> None:
    found = side.side_of(Plan(server=f"{scheme}://127.0.0.1:1"))
    assert type(found).__module__ == f"benchmarks.{scheme}_side"
    assert found.in_flight > 0


def test_an_unknown_scheme_is_refused() -> None:
    with pytest.raises(side.NoSide, match="it knows file, memory, penstock, nats, redis"):
        side.side_of(Plan(server="carrier://pigeon"))


def test_without_the_source_tree_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "src" / "penstock" / "__init__.py"
    monkeypatch.setattr(penstock, "__file__", str(package))
    with pytest.raises(side.NoSide, match="run bench from a checkout"):
        side.side_of(Plan(server="nats://127.0.0.1:1"))
    benchmarks = tmp_path / "benchmarks"
    benchmarks.mkdir()
    (benchmarks / "nats_side.py").write_text("import no_such_client")
    with pytest.raises(side.NoSide, match=r"pip install 'penstock.nats.'"):
        side.side_of(Plan(server="nats://127.0.0.1:1"))


def test_the_scheme_of_a_url() -> None:
    assert side.scheme_of("nats://h:1") == side.scheme_of("nats:always") == "nats"
