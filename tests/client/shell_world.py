"""The client library as a whole, driven by a seed: applications that do everything at any time, over a real journal.

One container, one journal, one publisher and three subscriptions, of which one is deleted and made anew now and then.
Several tasks of the application work with each link while others suspend, close and open it again, restart the client,
and while routers fail and refuse. `World.check()` is the verdict:

* each message that `submit_many` took has exactly one effect at each lasting subscription (G2), and no message has two;
* what `submit_many` did not take has no effect;
* a number is never given to two messages (P-2);
* `submit_many` has stored its messages, with their effect, when it returns, and stored nothing when it raises;
* what `accept()` reports as recorded does not come again, and what it does not record does;
* no link is left behind that can neither be used nor opened again.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from oncewire.client import (
    Client,
    ClientError,
    Delivery,
    JournalError,
    JournalLocked,
    Publisher,
    SqliteJournal,
    Subscriber,
    UsageError,
)
from oncewire.wire import AmqpError, LocalProtocolError
from tests.client.reference_router import Ingress, ReferenceRouter
from tests.client.shell_helpers import error
from tests.client.shuffled_loop import InlineExecutor, ShuffledLoop, run_shuffled
from tests.client.wire_server import Attachment, Network, WireServer

TOPIC = "t"
SHELL = (
    "journal_writer",
    "journals",
    "link",
    "publisher_link",
    "publisher",
    "receiving_link",
    "subscriber",
    "publisher_terms",
    "connector",
    "links",
    "connection",
    "connecting",
)
"""The modules that know tasks, each behind those it imports."""
LASTING = ("s", "u")
SUBSCRIPTIONS = (*LASTING, "v")
LONG_S = 10.0
"""Virtual seconds in which everything is done and at rest."""
PAUSE_S = 0.01
FAULTS = 25
BATCHES = 12
WORKERS = 2
"""Tasks that receive from one subscription."""
REFUSALS = ("amqp:unauthorized-access", "amqp:not-allowed", "amqp:internal-error", "amqp:link:stolen", "")


def body_of(delivery: Delivery) -> str:
    body = delivery.body
    assert isinstance(body, bytes)
    return body.decode()


class Shell:
    """A copy of the client's shell; each `connect` finds its modules in the place of the shipped ones."""

    def __init__(self) -> None:
        self.shipped = {name: importlib.import_module(name) for name in map("oncewire.client.{}".format, SHELL)}
        self.copies: dict[str, ModuleType] = {}

    @contextmanager
    def in_place(self) -> Iterator[None]:
        sys.modules.update(self.copies)
        try:
            yield
        finally:
            sys.modules.update(self.shipped)

    def connect(self, url: str, **terms: Any) -> Client:
        with self.in_place():
            made = self.copies["oncewire.client.connecting"].connect(url, **terms)
        assert isinstance(made, self.copies["oncewire.client.connection"].Client)
        return made  # type: ignore[no-any-return]  # a class of the copy


def load_shell(edits: Mapping[str, tuple[str, str]] | None = None) -> Shell:
    """A copy of the client's shell, with one piece of text in some modules replaced; its threads are the loop's."""
    edits, shell = edits or {}, Shell()
    with shell.in_place():
        for name in SHELL:
            full_name = f"oncewire.client.{name}"
            source = Path(str(shell.shipped[full_name].__file__)).read_text(encoding="utf-8")
            if name in edits:
                text, instead = edits[name]
                assert source.count(text) == 1, f"the edit must name one place of {name}.py"
                source = source.replace(text, instead)
            copy = shell.copies[full_name] = sys.modules[full_name] = ModuleType(full_name)
            exec(compile(source, f"{name}.py, edited", "exec"), copy.__dict__)
        sys.modules["oncewire.client.journal_writer"].__dict__["ThreadPoolExecutor"] = InlineExecutor
    return shell


def run_world(seed: int, folder: Path, shell: Shell) -> None:
    """One seed.

    Raises:
        AssertionError: a promise is broken.
    """

    async def run(loop: ShuffledLoop) -> None:
        await World(loop, folder / f"{seed}.db", shell).run()

    run_shuffled(run, seed)


class Mine(Exception):
    """What the application raises inside a transaction."""


class WatchedRouter(ReferenceRouter):
    """Asserts that a tag stands for one message."""

    def __init__(self) -> None:
        self.payloads: dict[bytes, bytes] = {}
        super().__init__([], 8)

    def transfer(self, ingress: Ingress, delivery_id: int, tag: bytes, payload: bytes) -> None:
        assert self.payloads.setdefault(tag, payload) == payload, "a number was given to two messages"
        super().transfer(ingress, delivery_id, tag, payload)


class World:
    """See the module.

    Args:
        loop: where everything runs.
        path: of the journal.
        shell: whose `connect()` is used.
    """

    def __init__(self, loop: ShuffledLoop, path: Path, shell: Shell) -> None:
        self.loop = loop
        self.random = loop.random
        self.shell = shell
        self.journal = SqliteJournal(path)
        self.journal.connection.execute("PRAGMA synchronous=OFF")  # nobody cuts the power here
        self.journal.connection.execute("CREATE TABLE taken (body TEXT)")
        self.journal.connection.execute("CREATE TABLE effects (subscription TEXT, incarnation INTEGER, body TEXT)")
        self.network = Network()
        self.network.topics[TOPIC] = self.router = WatchedRouter()
        self.server = WireServer(self.network)
        self.client: Client | None = None
        self.links: dict[str, Publisher | Subscriber] = {}
        self.former: dict[str, Publisher | Subscriber] = {}
        self.connecting = asyncio.Lock()
        self.is_over = False
        self.next_body = 0
        self.taken: dict[int, str] = {}
        self.refused: set[str] = set()
        self.unknown: set[str] = set()
        """Bodies of calls that were cancelled, or of plain submissions: they may be there or not."""
        self.accepted: list[tuple[str, int, str]] = []

    # --- what an application does -------------------------------------------------------------------------------------

    async def pause(self, longest: float = PAUSE_S) -> None:
        """Nothing, a turn of the loop, or some time."""
        for _ in range(self.random.randint(0, 2)):
            await asyncio.sleep(0)
        if self.random.random() < 0.5:
            await asyncio.sleep(self.random.uniform(0, longest))

    async def connected(self) -> Client:
        async with self.connecting:
            while self.client is None:
                client = self.shell.connect(self.server.url, container_id="c", timeout=2.0, idle_time_out=3600.0)
                client._random.seed(self.random.random())
                with suppress(ClientError):
                    self.client = await client.start()
            return self.client

    async def opened(self, name: str) -> Any:
        """The link of that name, opened (again) if nobody has done so; others may be at it."""
        while name not in self.links:
            try:
                self.links[name] = await self.open(await self.connected(), name)
            except (JournalError, UsageError) as refusal:
                if "open already" not in str(refusal):
                    raise
                await self.pause()
            except ClientError:
                await self.pause()
        return self.links[name]

    async def open(self, client: Client, name: str) -> Publisher | Subscriber:
        if name == "p":
            return await client.publisher(TOPIC, name=name, journal=self.journal, window=16)
        return await client.subscriber(TOPIC, name=name, journal=self.journal, prefetch=4, timeout=None)

    def dropped(self, name: str, link: Publisher | Subscriber) -> None:
        """The application sees that a link is of no use any more."""
        assert not isinstance(link._failure, JournalError), link._failure
        if self.links.get(name) is link:
            self.former[name] = self.links.pop(name)

    def dropped_if_ended(self, name: str, link: Publisher | Subscriber) -> None:
        if link._failure is not None:
            self.dropped(name, link)

    async def produce(self) -> None:
        for _ in range(BATCHES):
            link = await self.opened("p")
            bodies = [str(self.next_body + n) for n in range(self.random.randint(1, 3))]
            self.next_body += len(bodies)
            how = self.random.random()
            try:
                if how < 0.2:
                    self.unknown.update(bodies)
                    for body in bodies:
                        await link.send(body.encode(), timeout=self.random.uniform(0, PAUSE_S))
                else:
                    await self.submit(link, bodies, None if how < 0.8 else self.random.uniform(0, PAUSE_S))
            except (ClientError, TimeoutError):
                self.dropped_if_ended("p", link)
            await self.pause()

    async def submit(self, link: Publisher, bodies: list[str], limit: float | None) -> None:
        def effect(database: Any) -> None:
            database.executemany("INSERT INTO taken VALUES (?)", [(body,) for body in bodies])

        try:
            async with asyncio.timeout(limit):
                sendings = await link.submit_many([body.encode() for body in bodies], effect=effect)
        except TimeoutError:
            self.unknown.update(bodies)
        except ClientError:
            self.refused.update(bodies)
            raise
        else:
            for sending, body in zip(sendings, bodies, strict=True):
                assert sending.number not in self.taken, "a number was given out twice"
                self.taken[sending.number] = body

    async def consume(self, name: str) -> None:
        while not self.is_over:
            link = await self.opened(name)
            deliveries: list[Delivery] = []
            try:
                deliveries = await link.receive_many(self.random.randint(1, 3), timeout=1.0)
                await self.pause()
                await self.process(name, link, deliveries)
            except TimeoutError:
                pass
            except Mine:
                with suppress(ClientError):
                    for delivery in reversed(deliveries):
                        delivery.release()
            except ClientError:
                self.dropped_if_ended(name, link)

    async def process(self, name: str, link: Subscriber, deliveries: list[Delivery]) -> None:
        rows = [(name, delivery.incarnation, body_of(delivery)) for delivery in deliveries]
        how = self.random.random()
        if how < 0.4:
            await link.finish(deliveries)
            self.accepted += rows
        elif how < 0.45:
            raise Mine
        else:
            async with link.transaction(*deliveries) as database:
                assert link._failure is None, "a block began for a link that had ended"
                database.executemany("INSERT INTO effects VALUES (?, ?, ?)", rows)
                await self.pause()
                if how < 0.5:
                    raise Mine

    # --- what goes wrong ----------------------------------------------------------------------------------------------

    async def suspend(self, name: str) -> None:
        """Suspend and open again at once, by whoever comes first; or leave a link that may have ended long ago."""
        link = self.links.get(name) if self.random.random() < 0.7 else self.former.get(name)
        if link is not None:
            with suppress(JournalLocked):  # its client closes meanwhile, and waits for no block any more
                await link.suspend()
            assert link._failure is not None, "suspended, and it goes on"
            self.dropped(name, link)
            await self.opened(name)

    async def close(self, name: str) -> None:
        link = self.links.get(name)
        if link is not None:
            with suppress(ClientError, TimeoutError):
                async with asyncio.timeout(self.random.choice((0.001, PAUSE_S, 10 * PAUSE_S))):
                    end = link.unsubscribe if name not in ("p", *LASTING) else link.close  # type: ignore[union-attr]  # "v" is a subscription
                    await end()
            self.dropped_if_ended(name, link)

    async def restart_client(self) -> None:
        async with self.connecting:
            client, self.client = self.client, None
            if client is not None:
                self.links.clear()
                with suppress(ClientError, TimeoutError):
                    async with asyncio.timeout(self.random.choice((0.001, PAUSE_S, 10 * PAUSE_S))):
                        await (client.abandon() if self.random.random() < 0.5 else client.close())
                await client.abandon()

    async def cut(self) -> None:
        self.server.drop_connections()

    async def crash_router(self) -> None:
        await self.server.kill()
        await self.pause()
        await self.server.start()

    async def detach(self) -> None:
        """The router ends a link, or refuses the next one."""
        condition = self.random.choice(REFUSALS)
        reason = error(condition) if condition else None
        if not self.server.attachments or self.random.random() < 0.2:
            if reason is not None:
                self.server.refuse.append(reason)
            return
        self.detach_from_router(self.random.choice(self.server.attachments), bool(condition), reason)

    def detach_from_router(self, attachment: Attachment, closed: bool, reason: AmqpError | None) -> None:
        with suppress(LocalProtocolError):  # the client is detaching it
            attachment.link.detach(closed, reason)
        self.server.gone(attachment)
        attachment.connection.flush()

    async def end(self, name: str) -> None:
        """The router ends a link for good, and it is opened again at once."""
        link = self.links.get(name)
        found = [attachment for attachment in self.server.attachments if attachment.link.name == name]
        if link is not None and found:
            self.detach_from_router(found[0], True, error(REFUSALS[0]))
            await asyncio.wait([link._over], timeout=1.0)
            self.dropped_if_ended(name, link)
            await self.opened(name)

    async def break_things(self) -> None:
        for _ in range(FAULTS):
            await self.pause(4 * PAUSE_S)
            await self.random.choice(self.faults())()

    def faults(self) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        name = self.random.choice(("p", *SUBSCRIPTIONS))
        return [
            lambda: self.suspend(name),
            lambda: self.suspend(name),
            lambda: self.close(name),
            lambda: self.end(name),
            lambda: self.end(name),
            self.detach,
            self.cut,
            self.crash_router,
            self.restart_client,
        ]

    # --- the run ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Work with faults, then without, until everything is at rest; then the verdict.

        Raises:
            AssertionError: a promise is broken.
        """
        await self.server.start()
        try:
            async with asyncio.timeout(LONG_S):
                await self.work()
        except TimeoutError:
            links = {name: None if link._failure is None else str(link._failure) for name, link in self.links.items()}
            raise AssertionError(f"stuck: {links}") from None
        assert self.client is not None
        await self.client.abandon()
        self.check()
        await self.server.kill()
        self.journal.close()

    async def work(self) -> None:
        for name in SUBSCRIPTIONS:
            await self.opened(name)
        async with asyncio.TaskGroup() as group:
            for name in SUBSCRIPTIONS:
                for _ in range(WORKERS):
                    group.create_task(self.consume(name), name=name)
            working = [
                group.create_task(self.produce()),
                group.create_task(self.break_things()),
                group.create_task(self.break_things()),
            ]
            await asyncio.wait(working)
            self.server.refuse.clear()
            await self.come_to_rest()
            self.is_over = True

    async def come_to_rest(self) -> None:
        while True:
            publisher = await self.opened("p")
            with suppress(ClientError, TimeoutError):
                await publisher.flush(1.0)
                await asyncio.sleep(1.0)  # what could still come for a second time comes now
                if publisher.unfinished == 0 and self.links.get("p") is publisher:
                    return
            self.dropped_if_ended("p", publisher)

    def check(self) -> None:
        """The verdict; see the module."""
        rows = self.journal.connection.execute("SELECT body FROM taken").fetchall()
        stored = Counter(body for (body,) in rows)
        assert all(times == 1 for times in stored.values()), "taken twice"
        assert set(self.taken.values()) <= set(stored), "submit_many returned, and its messages are not in the journal"
        assert not self.refused & set(stored), "submit_many raised, and its messages are in the journal"
        done = Counter([*self.journal.connection.execute("SELECT * FROM effects"), *self.accepted])
        twice = [effect for effect, times in done.items() if times > 1]
        assert not twice, f"two effects of one message (subscription, incarnation, body): {twice}"
        assert not [effect for effect in done if effect[2] in self.refused], "an effect of what was not taken"
        lost = {(name, body) for name in LASTING for body in stored} - {(name, body) for name, _, body in done}
        assert not lost, f"no effect: {sorted(lost)}"
        left = self.journal.connection.execute("SELECT number FROM oncewire_messages").fetchall()
        assert not left, f"messages are left in the journal: {left}"
