"""`penstock gateway`: the device API on whatever broker the URL names."""

import asyncio
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from typing import Any, Final

from penstock.cli.command import Command
from penstock.cli.options import url_of
from penstock.cli.output import Output
from penstock.vocabulary.credentials import without_credentials

PORT_MAX: Final = 65_535


def add(parser: ArgumentParser) -> None:
    """Adds the arguments of this command."""
    parser.add_argument(
        "--port", type=port, default=8081, metavar="N", help="port (default 8081; 0 = any)"
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="address (default 127.0.0.1; others need --api-keys)"
    )
    parser.add_argument(
        "--api-keys", metavar="FILE", help='TOML file of senders: name = "key of 16 characters"'
    )
    parser.add_argument(
        "--dataset",
        action="append",
        default=[],
        metavar="NAME",
        help="serve another dataset too: a module or a file that holds DATASET",
    )
    parser.add_argument(
        "--reader",
        action="append",
        type=reader,
        default=[],
        metavar="DATASET=NAME",
        help="the `subscription` of the pipeline that reads a dataset, when it is not the default; "
        "readings are held for it from the first one on",
    )


async def run(arguments: Namespace, output: Output) -> int:
    """Serves until it is asked to stop; what is in hand is answered first."""
    from penstock.client.signals import stopping_on_signals
    from penstock.gateway.keys import read_keys
    from penstock.gateway.service import Gateway
    from penstock.pipeline.arrow import leave_pandas_alone

    leave_pandas_alone()
    keys = read_keys(arguments.api_keys) if arguments.api_keys else None
    gateway = Gateway(
        url_of(arguments), host=arguments.host, port=arguments.port, keys=keys,
        datasets=tuple(arguments.dataset), readers=dict(arguments.reader),
    )  # fmt: skip
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    with stopping_on_signals(lambda: loop.call_soon_threadsafe(stop.set)):
        async with gateway:
            _say(output, gateway.port, arguments)
            await stop.wait()
    output.notice("stopped")
    return 0


def port(text: str) -> int:
    """A port number; 0 = any that is free."""
    if not text.isdigit() or int(text) > PORT_MAX:
        raise ArgumentTypeError(f"{text!r} is not a port: 0 to {PORT_MAX}")
    return int(text)


def reader(text: str) -> tuple[str, str]:
    """A dataset and the name of its reader."""
    dataset, mark, name = text.partition("=")
    if not (dataset and mark and name):
        raise ArgumentTypeError(f"{text!r} is no dataset and reader, as pms=mine")
    return dataset, name


def _say(output: Output, port: int, arguments: Namespace) -> None:
    told: dict[str, Any] = {
        "host": arguments.host,
        "port": port,
        "url": without_credentials(url_of(arguments)),
    }
    if output.is_json:
        output.row(told)
    else:
        print(f"gateway on http://{arguments.host}:{port}, broker {told['url']}", flush=True)


COMMAND = Command(
    "gateway",
    "serve the device API: readings in over HTTP, durable when answered",
    "gateway --url file:./data\ngateway --url file:./data --host 0.0.0.0 --api-keys keys.toml",
    add,
    run,
    details="Without a key file it serves this machine only and asks for no key.",
)
