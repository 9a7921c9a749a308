"""A KubeMQ in memory, on the stubs of its SDK: queues, and nothing else. Run as a program.

No real server can be had. What is known of one is kept: a decision is answered only when it is
refused, the requests of a stream are done one after the other, and a stream that ends gives back
what it held. What is guessed: expiry, delay, the list of channels.
"""

import asyncio
import json
import sys
import time
from itertools import count
from typing import Any

import grpc  # type: ignore[import-untyped]
from kubemq.grpc import kubemq_pb2 as pb  # type: ignore[import-not-found]
from kubemq.grpc import kubemq_pb2_grpc as stubs

LOOK_S = 0.01


class Entry:
    """One message in one queue."""

    def __init__(self, message: Any, number: int) -> None:
        now = time.time()
        self.message = message
        self.due = now + message.Policy.DelaySeconds
        self.ends = (
            now + message.Policy.ExpirationSeconds if message.Policy.ExpirationSeconds else 0
        )
        self.holder: object = None
        message.Attributes.Sequence = number
        message.Attributes.ReceiveCount = 0
        message.Attributes.Timestamp = time.time_ns()


class Double(stubs.kubemqServicer):  # type: ignore[misc]
    """The server."""

    def __init__(self, token: str) -> None:
        self.queues: dict[str, dict[int, Entry]] = {}
        self.numbers = count(1)
        self.token = token

    def put(self, channel: str, message: Any) -> None:
        number = next(self.numbers)
        self.queues.setdefault(channel, {})[number] = Entry(message, number)

    def waiting(self, channel: str) -> list[Entry]:
        now = time.time()
        queue = self.queues.get(channel, {})
        for number, entry in list(queue.items()):
            if entry.ends and entry.ends <= now and entry.holder is None:
                del queue[number]
        return [each for each in queue.values() if each.holder is None and each.due <= now]

    async def Ping(self, _request: Any, context: Any) -> Any:  # noqa: N802
        given = dict(context.invocation_metadata()).get("authorization", "")
        if given != self.token:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, f"wrong token {given}")
        return pb.PingResult(Host="double", Version="2.5.0")

    async def SendRequest(self, request: Any, _context: Any) -> Any:  # noqa: N802
        tags = dict(request.Tags)
        body = b""
        if request.Metadata == "create-channel":
            self.queues.setdefault(tags["channel"], {})
        elif request.Metadata == "delete-channel":
            self.queues.pop(tags["channel"], None)
        else:
            names = [name for name in self.queues if tags.get("channel_search", "") in name]
            body = json.dumps([{"name": name, "type": "queues"} for name in names]).encode()
        return pb.Response(RequestID=request.RequestID, Executed=True, Body=body)

    async def SendQueueMessagesBatch(self, request: Any, _context: Any) -> Any:  # noqa: N802
        results = []
        for message in request.Messages:
            self.put(message.Channel, message)
            results.append(pb.SendQueueMessageResult(MessageID=message.MessageID))
        return pb.QueueMessagesBatchResponse(BatchID=request.BatchID, Results=results)

    async def ReceiveQueueMessages(self, request: Any, _context: Any) -> Any:  # noqa: N802
        assert request.IsPeak
        found = self.waiting(request.Channel)[: request.MaxNumberOfMessages]
        return pb.ReceiveQueueMessagesResponse(Messages=[each.message for each in found])

    async def QueuesDownstream(self, requests: Any, _context: Any) -> Any:  # noqa: N802
        stream = object()
        try:
            async for request in requests:
                answer = await self.answer(stream, request)
                if answer is not None:
                    yield answer
        finally:
            for queue in self.queues.values():
                for entry in queue.values():
                    if entry.holder is stream:
                        entry.holder = None

    async def answer(self, stream: object, request: Any) -> Any:
        kind = request.RequestTypeData
        said = pb.QueuesDownstreamResponse(RefRequestId=request.RequestID, RequestTypeData=kind)
        if kind == pb.Get:
            ends = time.time() + request.WaitTimeout / 1000
            found = self.waiting(request.Channel)[: request.MaxItems]
            while not found and time.time() < ends:
                await asyncio.sleep(LOOK_S)
                found = self.waiting(request.Channel)[: request.MaxItems]
            for entry in found:
                entry.holder = stream
                entry.message.Attributes.ReceiveCount += 1
            said.Messages.extend(entry.message for entry in found)
            said.TransactionId = request.RequestID
            return said
        held = {
            number: queue
            for queue in self.queues.values()
            for number, entry in queue.items()
            if entry.holder is stream
        }
        if kind == pb.ActiveOffsets:
            said.ActiveOffsets.extend(held)
            return said
        missing = [number for number in request.SequenceRange if number not in held]
        if missing:
            said.IsError, said.Error = True, f"sequences {missing} are not held"
            return said
        for number in request.SequenceRange:
            entry = held[number][number]
            entry.holder = None
            if kind == pb.AckRange:
                del held[number][number]
            elif kind == pb.ReQueueRange:
                del held[number][number]
                self.put(request.ReQueueChannel, entry.message)
        return None


async def main(port: int, token: str) -> None:
    server = grpc.aio.server()
    stubs.add_kubemqServicer_to_server(Double(token), server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""))
