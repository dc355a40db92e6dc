"""The client for programs without an event loop, against a router process."""

from __future__ import annotations

import asyncio
import inspect
import signal
import sqlite3
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from oncewire import client as asynchronous
from oncewire.client import ClientClosed, ClientEvent, NotAccepted, OutcomeKind, Subscriptions, UsageError, sync
from tests.docs.code_blocks import ROOT, blocks_of
from tests.router.processes import RouterProcess

LONG = 60.0
OF_THE_LOOP = {"end_released", "future", "was_awaited", "serial"}


async def elsewhere(program: Any, *arguments: Any) -> Any:
    """Run a program without an event loop; the test's own loop goes on meanwhile."""
    return await asyncio.wait_for(asyncio.to_thread(program, *arguments), LONG)


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    return [(each.name, each.kind, each.default) for each in inspect.signature(function).parameters.values()]


@pytest.mark.parametrize("name", ["Client", "Publisher", "SettledPublisher", "Subscriber", "Delivery"])
def test_each_method_of_the_client_has_a_twin_with_the_same_arguments(name: str) -> None:
    theirs, ours = getattr(asynchronous, name), getattr(sync, name)
    public = {each for each in dir(theirs) if not each.startswith("_")} - OF_THE_LOOP
    if name == "Delivery":  # its attributes are slots, which an instance of the twin has
        public -= {"attempts", "incarnation", "is_settled", "message_format", "payload", "tag"}
    else:
        public -= {"incarnation"} if name == "Publisher" else set()
    assert public - set(dir(ours)) == set()
    for each in public:
        made = inspect.getattr_static(theirs, each)
        if isinstance(made, property):
            assert isinstance(inspect.getattr_static(ours, each), property), each
        elif inspect.isfunction(made):
            assert parameters(getattr(ours, each)) == parameters(getattr(theirs, each)), each


def test_connect_takes_the_same_arguments() -> None:
    assert parameters(sync.connect) == parameters(asynchronous.connect)


async def test_messages_go_round_without_an_event_loop(router: RouterProcess) -> None:
    def program() -> None:
        with sync.connect(router.url, container_id="cafe") as client:
            subscriber = client.subscriber("orders", name="kitchen")
            with client.publisher("orders", name="shop", require=1) as publisher:
                sendings = [publisher.submit(b"%d" % number) for number in range(3)]
                first = subscriber.receive(LONG)
                assert (first.body, first.publisher) == (b"0", "cafe/shop")
                first.accept()
                assert sendings[0].result(LONG).subscriptions == Subscriptions(1, ("cafe/kitchen",))
                second = next(subscriber)
                second.release()
                again = subscriber.receive(LONG)
                assert (again.tag, again.attempts) == (second.tag, 1)
                subscriber.finish([again, *subscriber.receive_many(10, LONG)])
                assert sendings[2].result(LONG).is_accepted
                assert publisher.unfinished == 0
            subscriber.unsubscribe()
            with pytest.raises(NotAccepted) as caught:
                client.publisher("orders", require=1).send(b"nobody", timeout=LONG)
            assert caught.value.outcomes[0].kind is OutcomeKind.RELEASED

    await elsewhere(program)


async def test_a_message_that_waits_can_be_waited_for_again(router: RouterProcess) -> None:
    def program() -> None:
        with sync.connect(router.url, container_id="cafe") as client:
            subscriber = client.subscriber("orders", name="kitchen")
            publisher = client.publisher("orders")
            with pytest.raises(sync.StillOwed) as caught:
                publisher.send(b"x", timeout=0.2)
            assert caught.value.subscriptions == ("cafe/kitchen",)
            with pytest.raises(TimeoutError):
                caught.value.pending.result(0.1)
            oldest = publisher.oldest
            assert oldest is not None
            assert publisher.owed(oldest).count == 1
            subscriber.receive(LONG).accept()
            assert caught.value.pending.result(LONG).is_accepted

    await elsewhere(program)


async def test_effect_and_acceptance_are_one_transaction(router: RouterProcess, tmp_path: Path) -> None:
    file = tmp_path / "cafe.db"

    def program() -> None:
        with sync.connect(router.url, journal=file) as client:
            subscriber = client.subscriber("orders", name="kitchen")
            publisher = client.publisher("orders")
            sending = publisher.submit(b"two coffees")
            delivery = subscriber.receive(LONG)
            with delivery.transaction() as database:
                database.execute("CREATE TABLE done (what BLOB)")
                database.execute("INSERT INTO done VALUES (?)", (delivery.body,))
            assert sending.result(LONG).is_accepted
            publisher.submit(b"tea")
            failing = subscriber.receive(LONG)
            with suppress(ZeroDivisionError), subscriber.transaction(failing) as database:
                database.execute("INSERT INTO done VALUES (?)", (failing.body,))
                raise ZeroDivisionError
            failing.reject("no tea here")
            publisher.flush(LONG)

    await elsewhere(program)
    with sqlite3.connect(file) as database:
        assert database.execute("SELECT what FROM done").fetchall() == [(b"two coffees",)]
    database.close()


async def test_several_threads_use_one_client(router: RouterProcess) -> None:
    def program() -> None:
        with sync.connect(router.url) as client, client.settled_publisher("other") as other:
            other.send(b"x")
            publisher = client.publisher("orders")

            def publish() -> None:
                for _ in range(20):
                    publisher.send(b"x", timeout=LONG)

            threads = [threading.Thread(target=publish) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert publisher.statistics.accepted == 80

    await elsewhere(program)


async def test_a_closed_client_ends_its_thread_and_whoever_waits(router: RouterProcess) -> None:
    def program() -> None:
        client = sync.connect(router.url).start()
        subscriber = client.subscriber("orders")
        got: list[object] = []
        reader = threading.Thread(target=lambda: got.extend(subscriber))
        reader.start()
        client.close()
        reader.join(LONG)
        assert (got, reader.is_alive()) == ([], False)
        assert not any(thread.name == "oncewire-client" for thread in threading.enumerate())
        with pytest.raises(ClientClosed):
            subscriber.receive()
        client.close()

    await elsewhere(program)


def test_a_client_that_finds_no_router_leaves_no_thread_behind() -> None:
    with pytest.raises(asynchronous.ConnectFailed), sync.connect("amqp://127.0.0.1:1", timeout=0.2):
        pass
    assert not any(thread.name == "oncewire-client" for thread in threading.enumerate())


async def test_a_callback_that_calls_the_client_is_reported_so_and_does_not_wait_for_itself(
    router: RouterProcess,
) -> None:
    raised: list[BaseException] = []

    def program() -> None:
        def on_event(_event: ClientEvent) -> None:
            try:
                client.close()
            except UsageError as error:
                raised.append(error)

        client = sync.connect(router.url, on_event=on_event)
        with client:
            pass

    await elsewhere(program)
    assert raised
    assert all("a callback of the client" in str(error) for error in raised)


async def test_ctrl_c_ends_a_program_that_waits(router: RouterProcess) -> None:
    program = (
        "import sys, threading, time\n"
        "from oncewire.client import sync\n"
        "main = threading.get_ident()\n"
        "def say_when_it_waits():\n"
        "    while sys._current_frames()[main].f_code.co_name != 'wait':\n"
        "        time.sleep(0.01)\n"
        "    print('waits', flush=True)\n"
        f"with sync.connect({router.url!r}) as client:\n"
        "    subscriber = client.subscriber('orders')\n"
        "    threading.Thread(target=say_when_it_waits, daemon=True).start()\n"
        "    subscriber.receive()\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-c", program, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert await asyncio.wait_for(process.stdout.readline(), LONG) == b"waits\n"
    process.send_signal(signal.SIGINT)
    _, err = await asyncio.wait_for(process.communicate(), LONG)
    assert err.rstrip().endswith(b"KeyboardInterrupt")
    assert b"never awaited" not in err


async def test_the_program_of_the_page_works(router: RouterProcess) -> None:
    (program,) = [b.text for b in blocks_of(ROOT / "README.md") if b.run_by == "tests/client/test_sync.py"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-c", program.replace("amqp://127.0.0.1:5672", router.url), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await asyncio.wait_for(process.communicate(), LONG)
    assert (out, process.returncode) == (b"received: two coffees\noutcome: accepted\n", 0)
