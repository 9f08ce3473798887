"""Any bytes as what a user sends to the feedback socket: each request has one answer, and nothing is left waiting."""

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from spamfilter.config.sections import Feedback, Limits
from spamfilter.config.settings import Settings
from spamfilter.learning import mark_lookup
from spamfilter.learning.filter import Filter
from spamfilter.learning.mark_queue import MarkQueue
from spamfilter.relay.limits.limit_log import LimitLog
from spamfilter.service.control_socket.client import Answer
from spamfilter.service.control_socket.server import FeedbackSocket
from tests.fuzzing.target import Run, without_faults
from tests.fuzzing.wires import loop
from tests.support.made import follow
from tests.support.memory_store import open_store


async def _status(request: Answer) -> Answer:
    return {"running": True}


def _check(answers: bytes, sent: bytes) -> None:
    assert not answers or answers.endswith(b"\n")
    lines = answers.split(b"\n")[:-1]
    assert len(lines) <= sent.count(b"\n") + 1
    for number, line in enumerate(lines, 1):
        answer = json.loads(line)
        assert isinstance(answer, dict)
        if "error" in answer:
            assert answer["exit_code"] in (1, 2, 75)
            assert answer["error"].isprintable(), answer
        elif "running" not in answer:
            assert {"changed", "text"} <= set(answer), answer
        assert number <= len(lines)


@contextmanager
def target() -> Iterator[Run]:
    voices = Settings().voices()
    waited, mark_lookup.WRITTEN_WITHIN = mark_lookup.WRITTEN_WITHIN, 0.0  # an id that nobody has written never comes

    def empty() -> FeedbackSocket:
        filter = Filter(open_store("memory:"), voices)
        desk = MarkQueue(filter, Feedback(), learnt=lambda: follow(filter))
        return FeedbackSocket(Path("/nonexistent"), desk, Feedback(), {"status": _status}, Limits(), LimitLog())

    untaught = empty()

    def end(server: FeedbackSocket) -> None:
        server.mark_queue.close()
        server._name_service.shutdown()

    with loop() as running:

        def run(data: bytes) -> None:
            server = empty() if b"mark" in data else untaught
            answers = bytearray()

            async def talk() -> None:
                ours, theirs = socket.socketpair()
                reader, writer = await asyncio.open_connection(sock=ours)
                served = asyncio.create_task(server._serve(reader, writer))
                client, to_server = await asyncio.open_connection(sock=theirs)
                to_server.write(data)
                to_server.write_eof()
                with suppress(ConnectionError):  # it has heard enough and hung up, with our bytes unread
                    answers.extend(await client.read())
                await served
                to_server.close()

            running.run(talk())
            if server is not untaught:
                end(server)
            _check(bytes(answers), data)

        try:
            with without_faults(run) as watched:
                yield watched
        finally:
            end(untaught)
            mark_lookup.WRITTEN_WITHIN = waited
