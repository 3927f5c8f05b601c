"""What is delivered and what is sent leave in one order, joined while a message is under way."""

import asyncio

import pytest

from guard.events import CONTENT, Release
from guard.request import GenerationRequest
from guard.server.grpc_events import Encoder
from guard.server.grpc_outbox import MOST_WAITING, Outbox
from guard.v1 import guard_pb2 as pb


def words(*texts):
    return [Release(0, CONTENT, text, None, None) for text in texts]


class Call:
    """A call whose caller reads while ``open`` is set."""

    def __init__(self, error=None):
        self.written = []
        self.open = asyncio.Event()
        self.open.set()
        self.error = error
        encoder = Encoder(pb.GenerateResponse, GenerationRequest("r", "chat", "m"))
        self.outbox = Outbox(encoder.encode, self.send)

    def deliver(self, batch):
        """As the short way does."""
        taken = self.outbox.take(batch)
        if taken:
            self.outbox.push()
        return taken

    async def send(self, message):
        if self.error is not None:
            raise self.error
        await self.open.wait()
        await asyncio.sleep(0)
        self.written.append(message.delta.content)


async def turns():
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_lone_token_leaves_at_once():
    call = Call()
    for text in ("one", "two", "three"):
        assert call.deliver(words(text))
        await turns()
        assert call.written[-1] == text
    call.outbox.close()


async def test_what_comes_during_a_write_leaves_as_one_message():
    call = Call()
    call.open.clear()
    for text in ("a", "b", "c", "d"):
        assert call.deliver(words(text))
        await asyncio.sleep(0)
    call.open.set()
    await turns()
    assert call.written == ["a", "bcd"]
    call.outbox.close()


@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize("between", [0, 1, 30])
async def test_both_ways_keep_one_order(busy, between):
    call = Call()
    said = []
    for number in range(30):
        text = f"{number} "
        said.append(text)
        if busy:
            call.open.clear()
            asyncio.get_running_loop().call_later(0.001, call.open.set)
        if number % 3:
            assert call.deliver(words(text))
        else:
            await call.outbox.write(words(text))
        for _ in range(between):
            await asyncio.sleep(0)
    await call.outbox.write(words("end"))
    assert "".join(call.written) == "".join([*said, "end"])
    call.outbox.close()


async def test_a_caller_that_does_not_read_closes_the_short_way():
    call = Call()
    call.open.clear()
    taken = 0
    while call.deliver(words("x")):
        taken += 1
        await asyncio.sleep(0)
        assert taken <= MOST_WAITING + 1
    sending = asyncio.ensure_future(call.outbox.write(words("y")))
    await turns()
    assert not sending.done()
    call.open.set()
    await sending
    assert "".join(call.written) == "x" * taken + "y"
    call.outbox.close()


async def test_a_write_that_fails_is_told_by_the_long_way():
    call = Call(ConnectionError("gone"))
    assert call.deliver(words("a"))
    await turns()
    assert not call.deliver(words("b"))
    with pytest.raises(ConnectionError, match="gone"):
        await call.outbox.write(words("b"))
    call.outbox.close()


async def test_a_write_that_fails_while_the_long_way_waits():
    call = Call()
    call.open.clear()
    assert call.deliver(words("a"))
    sending = asyncio.ensure_future(call.outbox.write(words("b")))
    await turns()
    call.open.set()
    call.error = ConnectionError("gone")
    with pytest.raises(ConnectionError, match="gone"):
        await sending
    call.outbox.close()


async def test_nothing_is_written_after_its_end():
    call = Call()
    call.open.clear()
    assert call.deliver(words("a"))
    await turns()
    call.outbox.close()
    call.open.set()
    await turns()
    assert call.written == []
    assert not call.deliver(words("b"))
