"""Calls to KubeMQ over gRPC. The only module that imports the SDK, of which it uses the stubs."""

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final
from uuid import uuid4

from penstock.drivers.foreign.address import Address
from penstock.vocabulary.errors import AccessRefused, StorageError, Unavailable, Unsupported

WHERE_TO: Final = (
    "install it in an environment of its own, without packages that need a newer protobuf: "
    "python -m venv kubemq-env && kubemq-env/bin/pip install penstock kubemq"
)

try:
    import grpc  # type: ignore[import-untyped]
    from kubemq.grpc import kubemq_pb2 as pb  # type: ignore[import-not-found]
    from kubemq.grpc.kubemq_pb2_grpc import kubemqStub  # type: ignore[import-not-found]
except ImportError as error:
    raise Unsupported(
        f"kubemq: URLs need the package 'kubemq', which is not installed; {WHERE_TO}"
    ) from error
except Exception as error:
    raise Unsupported(
        f"kubemq: the package 'kubemq' does not load here ({type(error).__name__}): it needs "
        f"protobuf below 6; {WHERE_TO}"
    ) from error

CALL_S: Final = 10.0
SETTLED_S: Final = 1.0
"""A decision that was not answered with an error in this time is taken."""
INTERNAL: Final = "kubemq.cluster.internal.requests"
QUERY: Final = 2
BYTES_MAX: Final = 64 * 1024 * 1024
_CHANNEL: Final = [
    ("grpc.max_receive_message_length", BYTES_MAX),
    ("grpc.max_send_message_length", BYTES_MAX),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.use_local_subchannel_pool", 1),
]
_REFUSED: Final = (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED)


class Service:
    """One connection, shared by a carrier and its feeds."""

    def __init__(self, address: Address) -> None:
        host, port = address.hosts[0]
        self.where = address.text
        self.client_id = f"penstock-{uuid4().hex[:12]}"
        self.metadata = [("authorization", address.password)] if address.password else []
        if address.has_tls:
            ca = address.options.get("tls_ca")
            roots = None
            if ca:
                with open(ca, "rb") as file:  # noqa: PTH123 - read once, before the loop is busy
                    roots = file.read()
            safe = grpc.ssl_channel_credentials(roots)
            self._channel = grpc.aio.secure_channel(f"{host}:{port}", safe, options=_CHANNEL)
        else:
            self._channel = grpc.aio.insecure_channel(f"{host}:{port}", options=_CHANNEL)
        self.stub = kubemqStub(self._channel)

    async def close(self) -> None:
        """Ends the connection."""
        await self._channel.close()

    def translated(self, error: Any) -> Exception:
        """An error of gRPC in our words."""
        code = error.code()
        if code in _REFUSED:
            return AccessRefused(f"{self.where} refused the token of this URL ({code.name})")
        return Unavailable(f"{self.where}: {error.details() or code.name}")

    async def call(self, name: str, request: Any) -> Any:
        """Asks KubeMQ. Raises Unavailable, AccessRefused."""
        try:
            return await getattr(self.stub, name)(request, timeout=CALL_S, metadata=self.metadata)
        except grpc.aio.AioRpcError as error:
            raise self.translated(error) from error
        except grpc.aio.UsageError as error:  # the channel is closed
            raise Unavailable(f"{self.where}: {error}") from error

    async def ping(self) -> None:
        """Raises Unavailable when nobody answers."""
        await self.call("Ping", pb.Empty())

    async def send(self, messages: Sequence[dict[str, Any]]) -> list[str]:
        """Stores messages; what went wrong with each, empty when nothing did."""
        made = [pb.QueueMessage(ClientID=self.client_id, **each) for each in messages]
        request = pb.QueueMessagesBatchRequest(BatchID=uuid4().hex, Messages=made)
        answer = await self.call("SendQueueMessagesBatch", request)
        return [each.Error if each.IsError else "" for each in answer.Results]

    async def peek(self, channel: str, count: int) -> list[Any]:
        """Waiting messages, which stay where they are."""
        request = pb.ReceiveQueueMessagesRequest(
            RequestID=uuid4().hex, ClientID=self.client_id, Channel=channel,
            MaxNumberOfMessages=count, WaitTimeSeconds=1, IsPeak=True,
        )  # fmt: skip
        answer = await self.call("ReceiveQueueMessages", request)
        if answer.IsError:
            raise StorageError(f"{self.where}: {channel}: {answer.Error}")
        return list(answer.Messages)

    async def channels(self, search: str = "") -> list[dict[str, Any]]:
        """The queues whose names hold this text."""
        body = await self._manage("list-channels", channel_search=search)
        return [dict(each) for each in json.loads(body or b"[]") or ()]

    async def create(self, channel: str) -> None:
        """Makes a queue."""
        await self._manage("create-channel", channel=channel, client_id=self.client_id)

    async def delete(self, channel: str) -> None:
        """Deletes a queue."""
        await self._manage("delete-channel", channel=channel, client_id=self.client_id)

    async def _manage(self, what: str, **tags: str) -> bytes:
        request = pb.Request(
            RequestID=uuid4().hex, RequestTypeData=QUERY, ClientID=self.client_id, Channel=INTERNAL,
            Metadata=what, Timeout=int(CALL_S * 1000), Tags={"channel_type": "queues", **tags},
        )  # fmt: skip
        answer = await self.call("SendRequest", request)
        if not answer.Executed:
            kind = Unavailable if "not ready" in answer.Error else StorageError
            raise kind(f"{self.where}: {what}: {answer.Error}")
        return bytes(answer.Body)


class Hand:
    """One downstream: it takes messages, and only it can speak of those it took."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._call = service.stub.QueuesDownstream(metadata=service.metadata)
        self._lock = asyncio.Lock()
        self.transaction = ""
        self.held: set[int] = set()

    async def take(self, channel: str, count: int, wait_s: float) -> list[Any]:
        """Up to so many messages, which this hand holds from now on."""
        request = self._request(
            pb.Get, Channel=channel, MaxItems=count, WaitTimeout=int(wait_s * 1000)
        )
        async with self._lock:
            answer = await self._ask(request, wait_s + CALL_S)
        if answer is None:
            raise Unavailable(f"{self._service.where}: {channel}: no answer")
        if answer.IsError:
            raise StorageError(f"{self._service.where}: {channel}: {answer.Error}")
        self.transaction = answer.TransactionId
        self.held = {each.Attributes.Sequence for each in answer.Messages}
        return list(answer.Messages)

    async def finish(self, numbers: Sequence[int]) -> str:
        """Acks; why it was refused, empty when it was not."""
        return await self._decide(pb.AckRange, numbers)

    async def give_back(self, numbers: Sequence[int]) -> str:
        """Anybody may have these again."""
        return await self._decide(pb.NAckRange, numbers)

    async def move(self, numbers: Sequence[int], channel: str) -> str:
        """These go to another queue."""
        return await self._decide(pb.ReQueueRange, numbers, ReQueueChannel=channel)

    async def _decide(self, kind: int, numbers: Sequence[int], **fields: Any) -> str:
        """A decision is answered only when it is refused: the question behind it tells when."""
        about = {"RefTransactionId": self.transaction}
        said = self._request(kind, SequenceRange=numbers, **about, **fields)
        async with self._lock:
            self.held -= set(numbers)
            await self._write(said)
            answer = await self._ask(
                self._request(pb.ActiveOffsets, **about), SETTLED_S, said.RequestID
            )  # fmt: skip
        is_refused = answer is not None and answer.RefRequestId == said.RequestID
        return (answer.Error or "refused") if is_refused and answer.IsError else ""

    def _request(self, kind: int, **fields: Any) -> Any:
        return pb.QueuesDownstreamRequest(
            RequestID=uuid4().hex, ClientID=self._service.client_id, RequestTypeData=kind, **fields
        )

    async def _write(self, request: Any) -> None:
        try:
            await self._call.write(request)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            raise Unavailable(f"{self._service.where}: the connection broke") from error

    async def _ask(self, request: Any, patience_s: float, also: str = "") -> Any:
        """The answer to a request, or an error to the one before; None when there is none."""
        await self._write(request)
        try:
            async with asyncio.timeout(patience_s):
                while True:
                    answer = await self._call.read()
                    if answer is grpc.aio.EOF or answer.RequestTypeData == pb.CloseByServer:
                        raise Unavailable(f"{self._service.where}: the server ended the connection")
                    if answer.RefRequestId == also and not answer.IsError:
                        continue
                    if answer.RefRequestId in {request.RequestID, also}:
                        return answer
        except TimeoutError:
            return None
        except grpc.aio.AioRpcError as error:
            raise self._service.translated(error) from error

    def close(self) -> None:
        """What this hand still holds goes back."""
        with suppress(Exception):
            self._call.cancel()
