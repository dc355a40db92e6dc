"""What somebody meets who writes a first program: each mistake is reported at once, with what to do."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest

from oncewire.client import (
    ClientEvent,
    Delivery,
    JournalLocked,
    JournalOwnerError,
    MemoryJournal,
    PublisherWaits,
    RandomContainerWarning,
    SqliteJournal,
    UsageError,
    connect,
    stall_notice,
)
from tests.client.shell_helpers import LONG, until
from tests.client.wire_server import Network, WireServer
from tests.router.processes import running_router
from topology.etcd.server import free_port

ELSEWHERE = "cannot be used from here"


def in_a_thread(call: Any) -> BaseException | None:
    """What a call raises in another thread, with an event loop of its own."""
    found: list[BaseException | None] = [None]

    def run() -> None:
        try:
            asyncio.run(call())
        except BaseException as error:  # noqa: BLE001  # whatever it is
            found[0] = error

    thread = threading.Thread(target=run, name="worker")
    thread.start()
    thread.join(LONG)
    assert not thread.is_alive(), "the call waits"
    return found[0]


# --- another thread ---------------------------------------------------------------------------------------------------


async def test_a_call_from_another_thread_fails_at_once_and_says_what_to_do(server: WireServer) -> None:
    async with connect(server.url) as client:
        publisher = await client.publisher("t")
        subscriber = await client.subscriber("t")
        _ = await publisher.submit(b"first")
        delivery = await subscriber.receive()
        sending = await publisher.submit(b"second")

        async def await_it() -> None:
            await sending

        for call in (
            lambda: publisher.send(b"x"),
            lambda: publisher.submit(b"x"),
            lambda: publisher.submit_many([b"x"]),
            publisher.flush,
            publisher.close,
            publisher.suspend,
            lambda: publisher._owed(sending),
            await_it,
            subscriber.receive,
            delivery.accept,
            subscriber.close,
            subscriber.unsubscribe,
            client.close,
            client.abandon,
        ):
            error = in_a_thread(call)
            assert isinstance(error, UsageError), (call, error)
            assert ELSEWHERE in error.what
            assert "thread worker" in error.why
            assert "asyncio.run_coroutine_threadsafe" in error.fix

        async def subscribe() -> None:
            await client.subscriber("t")

        assert isinstance(in_a_thread(subscribe), UsageError)
        await delivery.accept()  # nothing of it has done harm
        await (await subscriber.receive()).accept()
        assert (await sending).is_accepted


async def test_what_it_says_to_do_works(server: WireServer) -> None:
    async with connect(server.url) as client:
        publisher = await client.publisher("t")
        loop = client.loop
        assert loop is not None

        def other_thread() -> bool:
            return asyncio.run_coroutine_threadsafe(publisher.send(b"x"), loop).result(LONG).is_accepted

        assert await asyncio.to_thread(other_thread)


async def test_releasing_a_delivery_outside_of_any_event_loop_fails_too(server: WireServer) -> None:
    async with connect(server.url) as client, client.publisher("t") as publisher, client.subscriber("t") as subscriber:
        _ = await publisher.submit(b"x")
        delivery: Delivery = await subscriber.receive()
        with pytest.raises(UsageError, match="outside its event loop"):
            await asyncio.to_thread(delivery.release)
        await delivery.accept()


# --- blocks without await ---------------------------------------------------------------------------------------------


async def test_links_are_entered_without_await_and_with_it(server: WireServer, network: Network) -> None:
    async with connect(server.url) as client:
        async with client.subscriber("t") as subscriber, client.publisher("t") as publisher:
            sending = await publisher.submit(b"x")
            await (await subscriber.receive()).accept()
            assert (await sending).is_accepted
        await until(lambda: not network.topic("t").subscriptions)  # left as any block is
        async with client.settled_publisher("t") as settled:
            assert settled.topic == "t"
        async with await client.publisher("t") as publisher:
            assert (await publisher.send(b"x")).is_accepted
        opened = await asyncio.gather(client.publisher("t"), asyncio.create_task(client.publisher("u")))
        for each in opened:
            await each.close()


async def test_an_error_in_the_block_suspends_the_link(server: WireServer, network: Network) -> None:
    async with connect(server.url, container_id="box") as client:
        with pytest.raises(ZeroDivisionError):
            async with client.subscriber("t", name="s"):
                raise ZeroDivisionError
        assert network.topic("t").subscriptions  # it can be resumed


# --- bodies -----------------------------------------------------------------------------------------------------------


class Rubbish:
    def encode(self) -> bytes:
        return b"this is no section"


class NeedsMore:
    def encode(self, text: str) -> bytes:
        return text.encode()


async def test_what_would_break_the_connection_is_refused_when_it_is_sent(server: WireServer) -> None:
    async with connect(server.url) as client, client.publisher("t") as publisher:
        with pytest.raises(UsageError, match="what a Rubbish encodes is no AMQP message"):
            await publisher.send(Rubbish())
        with pytest.raises(UsageError, match="an object of the type NeedsMore is no message"):
            await publisher.send(NeedsMore())  # type: ignore[arg-type]
        assert (await publisher.send(b"x")).is_accepted


async def test_the_type_checker_refuses_what_fails_at_run_time(server: WireServer) -> None:
    """mypy checks this file: an ignored line that it would accept is an error there (warn_unused_ignores)."""
    async with connect(server.url) as client, client.publisher("t") as publisher:
        with pytest.raises(UsageError):
            await publisher.send({"a": 1})  # type: ignore[arg-type]
        with pytest.raises(UsageError):
            await publisher.send(5)  # type: ignore[arg-type]
        with pytest.raises(UsageError):
            await publisher.send(None)  # type: ignore[arg-type]
        with pytest.raises(UsageError):
            _ = await publisher.submit(["x"])  # type: ignore[arg-type]


# --- waiting for an absent subscription -------------------------------------------------------------------------------


async def test_a_publisher_that_waits_names_the_absent_subscription_and_so_does_leaving_its_block(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stall_notice, "NOTICE_S", 0.05)
    caplog.set_level(logging.WARNING, "oncewire.client")
    events: list[ClientEvent] = []

    def reported(*, leaving: bool) -> list[PublisherWaits]:
        return [each for each in events if isinstance(each, PublisherWaits) and each.is_leaving is leaving]

    async with running_router("--standalone") as router, connect(router.url, container_id="cafe") as client:
        await (await client.subscriber("orders", name="kitchen")).suspend()  # it keeps its name and is absent
        async with connect(router.url, container_id="till", on_event=events.append) as shop:

            async def sell() -> None:
                async with shop.publisher("orders", name="shop") as publisher:
                    _ = await publisher.submit(b"two coffees")
                    await until(lambda: reported(leaving=False))

            selling = asyncio.create_task(sell())
            await until(lambda: reported(leaving=True))
            assert not selling.done()
            async with client.subscriber("orders", name="kitchen") as kitchen:
                await (await kitchen.receive()).accept()
                await selling
    for each in (reported(leaving=False)[0], reported(leaving=True)[0]):
        assert (each.link, each.messages, each.subscriptions, each.count) == ("shop", 1, ("cafe/kitchen",), 1)
    assert len(reported(leaving=False)) == 1  # once a minute for one message
    texts = [record.getMessage() for record in caplog.records]
    assert re.fullmatch(
        r"shop has waited \d s for the outcomes of 1 message: "
        r"1 subscription has not processed it: cafe/kitchen; "
        r"`oncewire manage delete subscription 'cafe/kitchen'` ends it if nobody needs it any more",
        texts[0],
    )
    assert any(text.startswith("leaving its block, shop has waited ") for text in texts)


async def test_a_publisher_whose_messages_move_on_says_nothing(
    server: WireServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stall_notice, "NOTICE_S", 0.01)
    async with connect(server.url) as client, client.publisher("t") as publisher:
        for _ in range(20):
            await publisher.send(b"x")
            await asyncio.sleep(0.005)
    assert caplog.records == []


# --- container-ids ----------------------------------------------------------------------------------------------------

PROGRAM = """
import asyncio, json, sys
from oncewire.client import connect
async def main():
    async with connect(sys.argv[1], journal=sys.argv[2]) as client:
        async with client.publisher("orders", name="shop") as publisher:
            await publisher.send(b"x")
        print(json.dumps(client.container_id))
asyncio.run(main())
"""


async def test_a_journal_keeps_a_container_id_from_process_to_process(tmp_path: Path) -> None:
    async with running_router("--standalone") as router:
        found = []
        for journal in ("a.db", "a.db", "b.db"):
            command = [sys.executable, "-c", PROGRAM, router.url, str(tmp_path / journal)]
            done = await asyncio.to_thread(
                subprocess.run, command, capture_output=True, text=True, timeout=60, check=False
            )
            assert (done.returncode, done.stderr) == (0, "")
            found.append(json.loads(done.stdout))
    first, again, other = found
    assert first == again != other
    assert first.startswith("oncewire-")


async def test_two_processes_cannot_have_the_container_id_of_one_journal(server: WireServer, tmp_path: Path) -> None:
    held = SqliteJournal(tmp_path / "j.db")
    try:
        with pytest.raises(JournalLocked):
            _ = await connect(server.url, journal=tmp_path / "j.db")
    finally:
        held.close()
    async with connect(server.url, journal=tmp_path / "j.db"):  # what failed has let go of it
        pass
    with pytest.raises(JournalOwnerError):
        _ = await connect(server.url, journal=tmp_path / "j.db", container_id="another")


async def test_links_with_a_name_are_kept_in_the_clients_journal_and_others_are_not(
    server: WireServer, tmp_path: Path
) -> None:
    async with connect(server.url, journal=tmp_path / "j.db") as client:
        async with client.publisher("t", name="named") as named, client.publisher("u") as unnamed:
            await named.send(b"x")
            await unnamed.send(b"x")
        async with client.publisher("v", name="elsewhere", journal=MemoryJournal()) as other:
            await other.send(b"x")
    journal = SqliteJournal(tmp_path / "j.db")
    try:
        rows = journal.connection.execute("SELECT link FROM oncewire_publishers").fetchall()
        assert (rows, journal.owner()) == ([("named",)], client.container_id)
    finally:
        journal.close()


async def test_no_router_leaves_no_journal_locked(tmp_path: Path) -> None:
    with pytest.raises(ConnectionError):
        _ = await connect(f"amqp://127.0.0.1:{free_port()}", journal=tmp_path / "j.db", timeout=0.1)
    SqliteJournal(tmp_path / "j.db").close()


async def test_a_random_container_id_is_reported_at_the_line_that_names_the_link(server: WireServer) -> None:
    async with connect(server.url) as client:
        assert client.container_id.startswith("oncewire-")
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            async with client.publisher("t", name="shop"):  # this line
                pass
            subscriber = await client.subscriber("t", name="kitchen")  # and this one
            await subscriber.unsubscribe()
            async with client.settled_publisher("t", name="tap"):  # and this one, too
                pass
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()  # noqa: ASYNC240  # this file
    assert [(each.category, each.filename) for each in found] == [(RandomContainerWarning, __file__)] * 3
    assert [lines[each.lineno - 1].partition("  # ")[2] for each in found] == [
        "this line",
        "and this one",
        "and this one, too",
    ]
    assert client.container_id in str(found[0].message)
