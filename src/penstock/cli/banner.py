"""What `penstock serve` says when it is ready: where the data is, what listens, how to try it."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from shlex import quote
from typing import Any

from penstock.cli.output import plural
from penstock.cli.stats import recovery_line

_MEANINGS = {
    "synced": "a confirmed message survives a crash",
    "written": "a confirmed message survives the end of this process",
    "memory": "nothing survives",
}


def version_text() -> str:
    """`penstock 1.2`."""
    from penstock.cli.main import version

    return f"penstock {version()}"


def ready(
    folder: Path, addresses: Mapping[str, str], broker: Any, stats: dict[str, Any]
) -> dict[str, Any]:
    """The same for a program: one line of JSON."""
    return {
        "ready": True,
        "pid": os.getpid(),
        "version": version_text(),
        "data": str(folder),
        "durability": broker.durability.value,
        "listening": dict(addresses),
        "topics": stats["topics"],
        "messages_held": stats["messages_held"],
        "health": stats["health"],
        "recovery": stats["recovery"],
    }


def lines(
    folder: Path, addresses: Mapping[str, str], broker: Any, stats: dict[str, Any]
) -> Iterator[str]:
    """The banner, for people."""
    durability = broker.durability.value
    yield f"{version_text()} serves {folder}"
    yield f"durability: {durability}, {_MEANINGS.get(durability, '')}"
    if stats["generation"] == 1:
        yield "recovered: nothing, this is a new store"
    else:
        yield (
            f"recovered: {plural(stats['topics'], 'topic')}, "
            f"{plural(stats['messages_held'], 'message')} held; {recovery_line(stats['recovery'])}"
        )
    for reason in stats["health"]["reasons"]:
        yield f"health: {stats['health']['status']}: {reason}"
    yield ""
    uses = {
        "frames": "penstock://{}",
        "lines": "telnet {}",
        "http": "http://{}/docs",
        "socket": quote(f"file:{folder}"),
    }
    width = max((len(address) for address in addresses.values()), default=0)
    for name, address in addresses.items():
        use = uses[name].format(_for_telnet(address) if name == "lines" else address)
        yield f"  {name:<7} {address:<{width}}  {use}"
    yield ""
    yield "try, in another terminal:"
    yield from tries(folder, addresses)
    yield "Ctrl-C stops it in good order"


def tries(folder: Path, addresses: Mapping[str, str]) -> Iterator[str]:
    """Three commands that work as they stand."""
    url = quote(f"penstock://{addresses['frames']}" if "frames" in addresses else f"file:{folder}")
    yield f"  penstock pub orders 'hello' --url {url}"
    yield f"  penstock sub orders --subscription first --count 1 --url {url}"
    if "http" in addresses:
        page = f"http://{addresses['http']}/v1/topics"
        yield f"  curl {quote(page)}"
    elif "lines" in addresses:
        yield f"  telnet {_for_telnet(addresses['lines'])}"
    else:
        yield f"  penstock stats --url {url}"


def _for_telnet(address: str) -> str:
    """Host and port as two words; an IPv6 address stands without brackets there."""
    host, _, port = address.rpartition(":")
    return f"{host.strip('[]')} {port}"
