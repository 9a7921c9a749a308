"""`penstock pipeline`: run, check, status, resume, compact and replay, as a pipeline file says."""

import asyncio
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from contextlib import AsyncExitStack
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from penstock.cli import values
from penstock.cli.command import Command, Group
from penstock.cli.output import Output, number, plural, printable
from penstock.cli.parser import BadUsage, suggestion
from penstock.cli.progress import Progress
from penstock.cli.top import cut

DEVICE_MAX: Final = 60
"""Characters of a device and pack that are shown: they may be long, and hold anything."""


def _add_file(parser: ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="pipeline file, such as pipeline.toml")
    parser.add_argument(
        "--pipeline", metavar="NAME", help="only this one of the file (default: all)"
    )


def _chosen(arguments: Namespace) -> list[Any]:
    from penstock.pipeline.settings import read_file

    for option in ("url", "context"):
        if getattr(arguments, option, None) is not None:
            raise BadUsage(
                f"--{option} changes nothing here: the broker of each pipeline is its `source` in "
                f"{arguments.file}"
            )
    found = read_file(arguments.file).pipelines
    if arguments.pipeline is None:
        return list(found.values())
    if arguments.pipeline not in found:
        raise BadUsage(
            f"{arguments.file} has no [pipeline.{arguments.pipeline}]; "
            f"{suggestion(arguments.pipeline, found)}"
        )
    return [found[arguments.pipeline]]


# -- run --------------------------------------------------------------------------------------


async def _run(arguments: Namespace, output: Output) -> int:
    from penstock.client.client import connect
    from penstock.client.signals import stopping_on_signals
    from penstock.pipeline.arrow import leave_pandas_alone, reuse_memory
    from penstock.pipeline.flow import Consumer

    pipelines = _chosen(arguments)
    if any(each.settings.lane == "spark" for each in pipelines):
        from penstock.cli.pipeline_spark import run_spark

        return await run_spark(pipelines, arguments.file, output)
    leave_pandas_alone()
    reuse_memory()
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        clients = {
            url: await stack.enter_async_context(connect(url))
            for url in dict.fromkeys(each.url for each in pipelines)
        }
        consumers = [
            await stack.enter_async_context(Consumer(each, clients[each.url])) for each in pipelines
        ]

        def stop() -> None:
            for consumer in consumers:
                loop.call_soon_threadsafe(consumer.stop)

        with (
            stopping_on_signals(stop),
            Progress(output, "rows") as progress,
        ):
            showing = asyncio.create_task(_show(progress, consumers))
            try:
                async with asyncio.TaskGroup() as group:
                    for consumer in consumers:
                        group.create_task(consumer.run())
            except ExceptionGroup as failed:
                raise failed.exceptions[0] from failed
            finally:
                showing.cancel()
        tell(output, consumers)
    return 0


async def _show(progress: Progress, consumers: list[Any]) -> None:
    while True:
        progress.set(sum(each.counts.read for each in consumers))
        await asyncio.sleep(0.2)


def tell(output: Output, consumers: list[Any]) -> None:
    """What each pipeline did."""
    names = ("read", "stored", "quarantined", "duplicate", "events")
    if output.is_json:
        output.document(
            [
                {"pipeline": each.pipeline.name, "batches": each.batches}
                | {name: getattr(each.counts, name) for name in names}
                for each in consumers
            ]
        )
        return
    rows = [
        [
            each.pipeline.name,
            number(each.batches),
            *(number(getattr(each.counts, n)) for n in names),
        ]
        for each in consumers
    ]
    output.table(["pipeline", ">batches", *(f">{name}" for name in names)], rows)


# -- look -------------------------------------------------------------------------------------


def _check(arguments: Namespace, output: Output) -> int:
    from penstock.pipeline.checking import check_table
    from penstock.pipeline.repositories.choose import has_table, open_repository

    found: list[dict[str, Any]] = []
    for each in _chosen(arguments):
        for url, folder in zip(each.repositories, each.folders(), strict=True):
            if not has_table(url, each.table):
                found.append({"pipeline": each.name, "table": folder, "rows": None, "series": []})
                continue
            storage = open_repository(url, each.table, each.dataset)
            try:
                checked = check_table(storage)
            finally:
                storage.close()
            import msgspec

            found.append({"pipeline": each.name, "table": folder, **msgspec.to_builtins(checked)})
    if output.is_json:
        output.document(found)
    else:
        for table in found:
            _show_check(output, table)
    return 1 if any(each.get("duplicates") for each in found) else 0


def _show_check(output: Output, table: dict[str, Any]) -> None:
    if table["rows"] is None:
        output.say(f"{table['pipeline']}: the file is right; {table['table']} does not exist yet")
        return
    output.heading(f"{table['pipeline']}: {plural(table['rows'], 'row')} in {table['table']}")
    if table["duplicates"]:
        output.say(f"{plural(table['duplicates'], 'row')} are there more than once")
    output.table(
        [
            "device", ">rows", "first", "last", ">step s", ">gaps", ">longest s", ">clashes",
            ">backwards",
        ],
        [
            [
                cut(printable("/".join(each["keys"]).encode()), DEVICE_MAX),
                number(each["rows"]), each["first"], each["last"],
                number(each["usual_step_s"]), number(each["gaps"]),
                number(each["longest_gap_s"]), number(each["clashes"]),
                number(each["backwards"]),
            ]
            for each in table["series"]
        ],
    )  # fmt: skip


async def _status(arguments: Namespace, output: Output) -> int:
    import msgspec

    from penstock.cli.connection import check_exists
    from penstock.client.client import connect
    from penstock.pipeline.operations import status
    from penstock.pipeline.spark import kafka_operations

    found = []
    for each in _chosen(arguments):
        if kafka_operations.is_here(each):
            told = await asyncio.to_thread(kafka_operations.status, each)
            found.append(msgspec.to_builtins(told))
            continue
        check_exists(each.url)
        async with connect(each.url) as client:
            found.append(msgspec.to_builtins(await status(each, client)))
    if output.is_json:
        output.document(found)
        return 0
    output.table(
        ["pipeline", ">epoch", ">batch", "finished", ">rows", ">lag", ">read", ">quarantined"],
        [
            [
                each["pipeline"], each["epoch"], each["batch"],
                "yes" if each["is_finished"] else "no", _rows(each["rows"]),
                number(each["lag"]), number(each["counts"]["read"]),
                number(each["counts"]["quarantined"]),
            ]
            for each in found
        ],
    )  # fmt: skip
    return 0


def _rows(tables: dict[str, int]) -> str:
    """How many rows the tables of a pipeline have, which is the same once a batch is finished."""
    return " / ".join(map(number, dict.fromkeys(tables.values())))


# -- change -----------------------------------------------------------------------------------


def _add_resume(parser: ArgumentParser) -> None:
    _add_file(parser)
    parser.add_argument(
        "--from-table",
        action="store_true",
        required=True,
        help="open a new epoch where the tables end",
    )
    parser.add_argument(
        "--skip-missing",
        action="store_true",
        help="begin behind what the broker no longer holds, and tell what that is: it is never "
        "stored",
    )


async def _resume(arguments: Namespace, output: Output) -> int:
    from penstock.pipeline.operations import resume_behind
    from penstock.pipeline.rewinding import SKIPPING, shown

    is_skipping = arguments.skip_missing
    found = {}
    for each in _chosen(arguments):
        held = await _held(each, is_needed=is_skipping)
        found[each.name] = resume_behind(each, held, skips_missing=is_skipping)
    if output.is_json:
        output.document(
            {
                name: {
                    "starts": done.starts,
                    "missing": [_range(each) for each in done.missing],
                    "is_skipped": is_skipping and bool(done.missing),
                }
                for name, done in found.items()
            }
        )
    for name, done in found.items():
        places = ", ".join(f"{at}:{end}" for at, end in sorted(done.starts.items()))
        output.notice(f"pipeline {name} goes on from {places}")
        if done.missing and not is_skipping:
            output.notice(
                f"its topic no longer holds {shown(done.missing)}: it will be refused. {SKIPPING} "
                "goes on behind that"
            )
    lost = [
        {"pipeline": name} | _range(each) for name, done in found.items() for each in done.missing
    ]
    if lost and not output.is_json:
        output.table(
            ["missing of", ">partition", ">start", ">end", ">offsets"],
            [
                [
                    each["pipeline"], each["partition"], each["start"], each["end"],
                    number(each["end"] - each["start"]),
                ]
                for each in lost
            ],
        )  # fmt: skip
    return 0


def _range(given: tuple[int, int, int]) -> dict[str, Any]:
    return dict(zip(("partition", "start", "end"), given, strict=True))


async def _held(pipeline: Any, *, is_needed: bool) -> dict[int, int]:
    """The lowest offsets that the broker holds; none when it cannot be asked and need not be."""
    from penstock.cli.connection import check_exists
    from penstock.client.client import connect
    from penstock.pipeline.rewinding import held_from
    from penstock.pipeline.spark import kafka_operations
    from penstock.vocabulary.errors import PenstockError

    try:
        if kafka_operations.is_here(pipeline):
            return await asyncio.to_thread(kafka_operations.lowest_held, pipeline)
        check_exists(pipeline.url)
        async with connect(pipeline.url) as client:
            return await held_from(client, pipeline.topic)
    except PenstockError:
        if is_needed:
            raise
        return {}


def _add_compact(parser: ArgumentParser) -> None:
    _add_file(parser)
    parser.add_argument(
        "--vacuum",
        metavar="HOURS",
        type=values.positive,
        help="delete files of Delta tables that only versions older than this need",
    )


def _compact(arguments: Namespace, output: Output) -> int:
    from penstock.pipeline.operations import compact_tables

    found = {
        root: done._asdict()
        for each in _chosen(arguments)
        for root, done in compact_tables(each, arguments.vacuum).items()
    }
    if output.is_json:
        output.document(found)
        return 0
    output.table(
        ["table", ">days", ">files before", ">files after", ">rows", ">deleted"],
        [[root, *map(number, done.values())] for root, done in found.items()],
    )
    return 0


def _add_replay(parser: ArgumentParser) -> None:
    _add_file(parser)
    parser.add_argument(
        "--quarantine",
        action="store_true",
        required=True,
        help="send what is in quarantine through the pipeline again",
    )
    parser.add_argument(
        "--fix",
        metavar="MODULE:FUNCTION",
        type=_function,
        help="mends each body: called with the bytes and the reasons, None leaves it in quarantine",
    )


def _function(text: str) -> Callable[..., Any]:
    module, _, name = text.partition(":")
    if not module or not name:
        raise BadUsage(f"--fix {text}: it must be MODULE:FUNCTION, as my_module:mend")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)  # a program that was installed does not look there by itself
    try:
        found = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        raise BadUsage(f"--fix {text}: there is no module {error.name!r}") from error
    except AttributeError as error:
        raise BadUsage(f"--fix {text}: {error}") from error
    except Exception as error:
        raise BadUsage(f"--fix {text}: {module} cannot be loaded: {error!r}") from error
    if not callable(found):
        raise BadUsage(f"--fix {text}: it cannot be called")
    return found  # type: ignore[no-any-return]


async def _replay(arguments: Namespace, output: Output) -> int:
    from penstock.cli.connection import check_exists
    from penstock.client.client import connect
    from penstock.pipeline.operations import replay
    from penstock.pipeline.spark import kafka_operations

    found: dict[str, dict[str, int]] = {}
    for each in _chosen(arguments):
        if kafka_operations.is_here(each):
            sent, left = await asyncio.to_thread(kafka_operations.replay, each, arguments.fix)
        else:
            check_exists(each.url)
            async with connect(each.url) as client:
                sent, left = await replay(each, client, arguments.fix)
        found[each.name] = {"sent": sent, "left": left}
    if output.is_json:
        output.document(found)
        return 0
    output.table(
        ["pipeline", ">sent", ">left"],
        [[name, number(done["sent"]), number(done["left"])] for name, done in found.items()],
    )
    return 0


GROUP = Group(
    "pipeline",
    "readings from topics into tables, each exactly once",
    (
        Command(
            "run",
            "run the pipelines of a file",
            "pipeline run pipeline.toml",
            _add_file,
            _run,
            details="Stops when nothing is new (trigger available-now), or at TERM, after the\n"
            "batch in hand.",
        ),
        Command(
            "check",
            "check the file, and look over its tables for gaps, clashes and order",
            "pipeline check pipeline.toml",
            _add_file,
            _check,
        ),
        Command(
            "status",
            "how far each pipeline is, whether it runs or not",
            "pipeline status pipeline.toml --json",
            _add_file,
            _status,
        ),
        Command(
            "resume",
            "go on after a lost or foreign checkpoint, or behind what the topic lost",
            "pipeline resume pipeline.toml --from-table\n"
            "pipeline resume pipeline.toml --from-table --skip-missing",
            _add_resume,
            _resume,
        ),
        Command(
            "compact",
            "merge small files of the tables",
            "pipeline compact pipeline.toml\npipeline compact pipeline.toml --vacuum 168",
            _add_compact,
            _compact,
        ),
        Command(
            "replay",
            "send what is in quarantine through the pipeline again",
            "pipeline replay pipeline.toml --quarantine",
            _add_replay,
            _replay,
        ),
    ),
)
