"""What the figures were measured on: without it a figure means nothing."""

import os
import platform
from importlib import metadata
from pathlib import Path


def describe(folder: Path | None) -> dict[str, str | int]:
    """This machine, this Python, this Penstock, and the file system of the folder."""
    found: dict[str, str | int] = {
        "cpus": os.cpu_count() or 0,
        "cpu": _cpu(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "penstock": _version(),
    }
    if folder is not None:
        kind, device, options = file_system(folder)
        found |= {"file_system": kind, "device": device, "mount_options": options}
    return found


def file_system(folder: Path) -> tuple[str, str, str]:
    """(kind, device, options) of the mount a folder is on."""
    inside = str(folder.resolve())
    best = ("", "unknown", "unknown", "")
    for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
        device, place, kind, options, *_ = line.split(" ")
        place = place.encode().decode("unicode_escape")
        is_on = inside == place or inside.startswith(place.rstrip("/") + "/")
        if is_on and len(place) >= len(best[0]):
            best = (place, kind, device, options)
    return best[1], best[2], best[3]


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def _version() -> str:
    try:
        return metadata.version("penstock")
    except metadata.PackageNotFoundError:
        return "not installed"
