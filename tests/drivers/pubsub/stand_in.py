"""A Pub/Sub that answers as it is told: what emulators never say, such as refused acks."""

from collections.abc import Callable
from inspect import isawaitable
from typing import Any, Self

import grpc  # type: ignore[import-untyped]
from google.protobuf.any_pb2 import Any as AnyMessage  # type: ignore[import-untyped]
from google.rpc.error_details_pb2 import ErrorInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]

from penstock.drivers.foreign.address import Address, parse
from penstock.drivers.pubsub import OPTIONS
from penstock.drivers.pubsub.service import _METHODS, DETAILS

Handler = Callable[[Any, Any], Any]


class StandIn:
    """A gRPC server on a free port; `on["Pull"] = handler(request, context)`."""

    def __init__(self) -> None:
        self.on: dict[str, Handler] = {}
        self.asked: list[tuple[str, Any]] = []
        self._server = grpc.aio.server()
        self.port = 0

    async def __aenter__(self) -> Self:
        for service in ("Publisher", "Subscriber"):
            methods = {
                name: grpc.unary_unary_rpc_method_handler(
                    self._handler(name),
                    request_deserializer=asked.FromString,
                    response_serializer=answered.SerializeToString,
                )
                for name, (home, asked, answered) in _METHODS.items()
                if home == service
            }
            path = f"google.pubsub.v1.{service}"
            generic = grpc.method_handlers_generic_handler(path, methods)
            self._server.add_generic_rpc_handlers((generic,))
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop(None)

    def _handler(self, name: str) -> Any:
        async def handle(request: Any, context: Any) -> Any:
            self.asked.append((name, request))
            handler = self.on.get(name)
            answer: Any = None if handler is None else handler(request, context)
            if isawaitable(answer):
                answer = await answer
            return _METHODS[name][2]() if answer is None else answer

        return handle

    @property
    def address(self) -> Address:
        """How a client finds it."""
        return parse(f"pubsub://project?emulator=127.0.0.1:{self.port}", 0, OPTIONS)


def refusing(code: Any, text: str = "no", **failed: str) -> Handler:
    """A handler that fails; `failed` tells of single deliveries."""

    async def fail(_request: Any, context: Any) -> None:
        if failed:
            detail = AnyMessage()
            detail.Pack(ErrorInfo(metadata=failed))
            status = Status(code=code.value[0], message=text, details=[detail])
            context.set_trailing_metadata(((DETAILS, status.SerializeToString()),))
        await context.abort(code, text)

    return fail
