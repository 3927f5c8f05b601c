"""The addresses of several workers: taken or not, shared, given up, gone."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from guard.addresses import Addresses
from guard.config import Config
from guard.server.listener import ServeError


def _config(http: str = "", grpc: str = "") -> Config:
    return Config.model_validate(
        {
            "listen": {"http": http, "grpc": grpc},
            "engines": [{"name": "a", "url": "http://127.0.0.1:1"}],
            "routes": [{"model": "m", "engines": ["a"]}],
        }
    )


@pytest.fixture
def addresses() -> Iterator[Addresses]:
    made = Addresses(_config("127.0.0.1:0", "127.0.0.1:0"))
    yield made
    made.close()


def _http(addresses: Addresses) -> tuple[str, int]:
    [line] = [line for line in addresses.lines if line.startswith("http ")]
    host, _, port = line.removeprefix("http ").rpartition(":")
    return host, int(port)


def _listener(addresses: Addresses, slot: int) -> socket.socket:
    """As a worker has it that inherited the descriptor."""
    fd = addresses.http(slot)
    assert fd is not None
    one = socket.fromfd(fd, socket.AF_INET, socket.SOCK_STREAM)
    one.listen(64)
    one.setblocking(False)
    return one


def _accepted(listener: socket.socket) -> int:
    count = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            listener.accept()[0].close()
            count += 1
    return count


@pytest.mark.parametrize("key", ["http", "grpc"])
def test_one_that_is_taken_is_said_with_its_key(key: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ServeError, match=f"listen.{key}: {address} cannot be bound: ") as raised:
            Addresses(_config(**{key: address}))
    assert raised.value.key == f"listen.{key}"


def test_a_second_sidecar_cannot_join(addresses: Addresses) -> None:
    """Though its user is the same, and although it would share as well."""
    with _listener(addresses, 0):
        host, port = _http(addresses)
        with pytest.raises(ServeError):
            Addresses(_config(f"{host}:{port}"))


def test_connections_are_spread_and_go_to_the_living(addresses: Addresses) -> None:
    here = _http(addresses)
    with _listener(addresses, 0) as first, contextlib.ExitStack() as callers:
        with _listener(addresses, 1) as second:
            for _ in range(60):
                callers.enter_context(socket.create_connection(here, 5))
            taken = _accepted(first), _accepted(second)
            assert sum(taken) == 60
            assert min(taken) > 5  # by chance once in 10^10
        addresses.give_up(1)  # its worker is dead
        addresses.http(1)  # and the one that replaces it does not listen yet
        for _ in range(20):
            callers.enter_context(socket.create_connection(here, 5))
        assert _accepted(first) == 20


def test_what_waits_is_there_for_the_next_worker_of_the_slot(addresses: Addresses) -> None:
    with contextlib.ExitStack() as callers:
        with _listener(addresses, 0):
            callers.enter_context(socket.create_connection(_http(addresses), 5))
        with _listener(addresses, 0) as after:
            assert _accepted(after) == 1


def test_a_protocol_that_is_off_has_no_address() -> None:
    addresses = Addresses(_config(grpc="127.0.0.1:0"))
    assert addresses.http(0) is None
    assert [line.partition(" ")[0] for line in addresses.lines] == ["grpc"]
    addresses.close()
