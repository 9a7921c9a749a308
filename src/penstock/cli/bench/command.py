"""`penstock bench`: one measurement by name, or the whole table of targets with --suite."""

import shutil
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from penstock.cli import values
from penstock.cli.bench import suite
from penstock.cli.bench.modes import MODES, ON_DISK
from penstock.cli.command import Command
from penstock.cli.output import BOLD, GREEN, RED, Output, duration, number, size
from penstock.cli.parser import BadUsage
from penstock.cli.progress import Progress
from penstock.vocabulary.credentials import without_credentials

SECONDS: Final = 10.0
QUICK_S: Final = 1.5
ROW = "{:<62}  {:>13}  {:>13}  {:>4}  {}"


def add(parser: ArgumentParser) -> None:
    """Adds the arguments of this command."""
    what = parser.add_argument_group("what to measure")
    what.add_argument(
        "what",
        nargs="?",
        choices=["hostile", "pipeline"],
        help="hostile: bad clients beside good ones; pipeline: readings into tables beside Spark",
    )
    what.add_argument("--mode", choices=MODES, default="publish", help="default: publish")
    what.add_argument(
        "--serve", action="store_true", help="start a Penstock server, and measure it over TCP"
    )
    what.add_argument(
        "--compare",
        nargs="+",
        metavar="URL",
        default=[],
        help="the same work there, too, in turns: penstock://…, nats://…, redis://…, "
        "kafka://…, memory:; "
        "nats:, nats:always, redis: and redis:always start a server of the cache",
    )
    what.add_argument("--suite", action="store_true", help="every figure beside its target")
    names = ", ".join(row.name for row in suite.ROWS)
    what.add_argument("--rows", metavar="NAME,…", help=f"only these rows of the suite: {names}")
    how = parser.add_argument_group("how much of it")
    much = how.add_mutually_exclusive_group()
    much.add_argument("--messages", type=values.positive, metavar="N", help="this many messages")
    much.add_argument("--seconds", type=values.seconds, metavar="S", help="default: 10")
    how.add_argument("--size", type=values.positive, default=100, metavar="B", help="bytes a body")
    how.add_argument("--batch", type=values.positive, default=1_000, metavar="N")
    how.add_argument("--callers", type=values.positive, default=100, metavar="N")
    how.add_argument("--in-flight", type=values.positive, metavar="N", help="batches at once")
    how.add_argument(
        "--rate", type=values.positive, metavar="N", help="messages a second, for latency"
    )
    how.add_argument(
        "--rounds", type=values.positive, default=2, metavar="N", help="turns of each, default: 2"
    )
    how.add_argument("--keep-every", type=values.positive, metavar="N", help="for compaction")
    how.add_argument("--durability", choices=["synced", "written"], default="synced")
    how.add_argument("--quick", action="store_true", help="about two seconds a row: a smoke test")
    parser.add_argument(
        "--strict", action="store_true", help="exit code 1 when a figure misses its target"
    )


def run(arguments: Namespace, output: Output) -> int:
    """Measures in child processes, in a folder of its own that is removed afterwards."""
    if arguments.what == "hostile":
        from penstock.cli.bench import hostile

        return hostile.run(arguments, output)
    if arguments.what == "pipeline":
        from penstock.cli.bench.pipeline import command as pipeline

        return pipeline.run(arguments, output)
    if is_for_all(arguments):
        from penstock.cli.bench import comparing

        return comparing.run(arguments, output)
    with scratch(arguments) as folder:
        plan = plan_of(arguments, folder)
        if arguments.suite or arguments.rows:
            return _suite(arguments, output, plan)
        return _one(arguments, output, plan)


def is_for_all(arguments: Namespace) -> bool:
    """Whether the work is the one that every kind of broker can be given."""
    from penstock.cli.bench import compare, places

    url = getattr(arguments, "url", None) or "file:."
    is_ours = url.partition(":")[0] in {"file", "memory"}
    is_asked = bool(arguments.compare or arguments.serve or arguments.rate)
    if arguments.suite or arguments.rows:
        if is_asked or not is_ours:
            raise BadUsage("the suite starts what it needs: name only a disk, with --url file:DIR")
        return False
    if is_ours and not is_asked and arguments.mode != "one":
        return False
    for each in (url, *arguments.compare):
        places.check(each)
    if arguments.mode not in compare.MODES:
        raise BadUsage(
            f"--mode {arguments.mode} measures file:DIR only; anywhere: {', '.join(compare.MODES)}"
        )
    if arguments.rate and arguments.mode != "latency":
        raise BadUsage("--rate is for --mode latency")
    return True


@contextmanager
def scratch(arguments: Namespace) -> Iterator[Path | None]:
    """A new folder on the disk that --url names, else on the current one; None for memory:."""
    url = getattr(arguments, "url", None) or "file:."
    scheme, _, rest = url.partition(":")
    if scheme == "memory" and not (arguments.what or is_for_all(arguments)):
        if arguments.suite or arguments.rows or arguments.mode in ON_DISK:
            raise BadUsage("this measurement needs a disk: use --url file:DIR")
        yield None
        return
    parent = Path((rest if scheme == "file" else "") or ".")
    if (parent / "superblock").exists():
        raise BadUsage(f"{parent} holds a store; name another folder, which bench may fill")
    is_new = not parent.exists()
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-", dir=parent)).resolve()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if is_new:
            parent.rmdir()


def plan_of(arguments: Namespace, folder: Path | None) -> Any:
    """The plan the command line describes."""
    from penstock.cli.bench.plan import Plan

    return Plan(
        folder="" if folder is None else str(folder),
        seconds=arguments.seconds or (QUICK_S if arguments.quick else SECONDS),
        messages=arguments.messages,
        size=arguments.size,
        batch=arguments.batch,
        callers=arguments.callers,
        in_flight=arguments.in_flight or (0 if arguments.what or is_for_all(arguments) else 10),
        rate=float(arguments.rate) if arguments.rate else None,
        durability=arguments.durability,
        keep_every=arguments.keep_every,
        is_quick=arguments.quick,
    )


# -- one measurement -------------------------------------------------------------------------------


def _one(arguments: Namespace, output: Output, plan: Any) -> int:
    from penstock.cli.bench import machine, modes

    base = Path(plan.folder) if plan.folder else None
    asked = plan if base is None else msgspec.structs.replace(plan, folder=str(base / "store"))
    with Progress(output, f"measuring {arguments.mode}") as progress:
        found = modes.measure(arguments.mode, asked, progress.draw)
    where = machine.describe(base)
    if output.is_json:
        shown = {**msgspec.to_builtins(plan), "folder": None}
        shown["server"] = without_credentials(plan.server)
        output.document({"mode": arguments.mode, "plan": shown, "machine": where, **found})
    else:
        show_machine(output, where, plan)
        output.say()
        output.pairs(dict(readable(found)))
    return 1 if found.get("lost") else 0


def readable(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Names and values of a measurement, for people."""
    for name, value in found.items():
        words = name.replace("_per_s", " per second").replace("_", " ")
        if isinstance(value, dict):
            parts = [f"{key} {duration(v)}" for key, v in value.items() if key != "count"]
            yield words, ", ".join(parts)
        elif name.endswith("bytes_per_s"):
            yield words, f"{size(value)}/s"
        elif name.endswith("_p99"):
            yield f"{words} of the median second", duration(value)
        elif name.endswith("_per_s"):
            yield words, f"{number(round(value))}/s"
        elif "bytes" in name:
            yield words, size(value)
        elif name.endswith("_s") or name in {"seconds", "start_late"}:
            yield words.removesuffix(" s"), duration(value)
        elif name.endswith("share"):
            yield words, f"{value:.0%}"
        else:
            yield words, number(value)


# -- the suite -------------------------------------------------------------------------------------


def _suite(arguments: Namespace, output: Output, plan: Any) -> int:
    from penstock.cli.bench import machine

    rows = _chosen(arguments)
    where = machine.describe(plan.path)
    limits = suite.raw_limits(plan.path, min(2.0, plan.seconds))
    if not output.is_json:
        show_machine(output, where, plan)
        text = f"raw disk: {number(round(limits.syncs_per_s))} syncs/s, p50 {duration(limits.p50)}"
        output.say(f"{text}, p99 {duration(limits.p99)}")
        output.say()
        output.say(output.paint(ROW.format("FIGURE", "MEASURED", "TARGET", "", "RAW"), BOLD))
    figures, details = [], {}
    with Progress(output, "measuring", len(rows)) as progress:
        for row, found, judged in suite.run(plan, rows, limits, progress.draw):
            progress.clear()
            figures += judged
            details[row.name] = found
            if not output.is_json:
                _show(output, judged)
            progress.add()
    missed = [figure for figure in figures if figure.verdict == "MISS"]
    if output.is_json:
        output.document(
            {
                "machine": where,
                "durability": plan.durability,
                "is_quick": plan.is_quick,
                "raw": msgspec.to_builtins(limits),
                "figures": [figure.to_json() for figure in figures],
                "missed": len(missed),
                "details": details,
            }
        )
    else:
        output.say()
        asked = sum(figure.target is not None for figure in figures)
        output.say(f"{asked - len(missed)} of {asked} figures reach their target")
    has_lost = any(figure.unit == "count" for figure in missed)
    return 1 if has_lost or (arguments.strict and missed) else 0


def _chosen(arguments: Namespace) -> Any:
    from penstock.cli.parser import suggestion

    if not arguments.rows:
        return suite.ROWS
    known = {row.name: row for row in suite.ROWS}
    wanted = [name.strip() for name in arguments.rows.split(",")]
    for name in wanted:
        if name not in known:
            raise BadUsage(f"the suite has no row {name!r}; {suggestion(name, known)}")
    return tuple(known[name] for name in wanted)


def _show(output: Output, figures: Any) -> None:
    for figure in figures:
        verdict = figure.verdict
        line = ROW.format(
            figure.row, figure.value_text, figure.target_text, verdict, figure.raw
        ).rstrip()
        if figure.target is not None:
            painted = output.paint(verdict, GREEN if verdict == "PASS" else RED)
            line = line.replace(f"  {verdict}", f"  {painted}", 1)
        output.say(line)
        if figure.note:
            output.say(f"    {figure.note}")


def show_machine(output: Output, where: dict[str, Any], plan: Any) -> None:
    """What the figures were measured on, and with what."""
    memory = size(where["memory_bytes"])
    output.say(f"{where['cpus']} × {where['cpu']}, {memory}, {where['kernel']}")
    disk = f", {where['file_system']} on {where['device']}" if "device" in where else ""
    output.say(f"{where['python']}, penstock {where['penstock']}{disk}")
    quick = " (quick: a smoke test, not a result)" if plan.is_quick else ""
    output.say(f"durability {plan.durability}, bodies of {plan.size} bytes{quick}")


COMMAND = Command(
    "bench",
    "measure speed on this machine, beside what its disk alone can do",
    "bench --mode publish --batch 1000 --seconds 10\n"
    "bench --mode latency --url file:/var/tmp --json\n"
    "bench --mode end-to-end --batch 100 --serve --compare nats: redis:\n"
    "bench --mode latency --rate 5000 --url penstock://127.0.0.1:8001\n"
    "bench --suite\n"
    "bench --suite --quick --rows callers,latency\n"
    "bench pipeline --messages 100000 --rows run,process",
    add,
    run,
    details="Each measurement runs in a process of its own, in a new folder that is removed\n"
    "afterwards: below the current folder, or below DIR with --url file:DIR. A server is one\n"
    "process, and one other process publishes and consumes. With --compare every URL gets the\n"
    "same work in turns, in an order that rotates; ratios are those of the first URL.",
)
