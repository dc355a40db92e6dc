"""Two scripted routers and the client's program, for one scenario."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import TracebackType
from typing import Self

from oncewire.testing.resume.judging import BrokenClaim, require
from oncewire.testing.resume.links import FromPublisher, ToSubscriber
from oncewire.testing.resume.program import Program
from oncewire.testing.resume.router import Attaches, ScriptedRouter, Visit
from oncewire.wire import Link, ReceiverLink, SenderLink

LINK_STOLEN = "amqp:link:stolen"
TOPIC = "rows"
ROWS = 200
"""Messages of a publisher: more than any scenario takes, so that it does not end in the middle."""
NEVER = 1_000_000
"""Messages after which a subscriber ends."""


class Stage:
    """Use with ``async with``.

    Attributes:
        first, second: the routers, in the order of the program's addresses.
        program: the client's.
        patience_s: how long it may take for its next step.
    """

    def __init__(self, role: str, command: str, folder: Path, patience_s: float) -> None:
        self._attaches: Attaches = asyncio.Queue()
        self.patience_s = patience_s
        self.first = ScriptedRouter("first", self._attaches, patience_s)
        self.second = ScriptedRouter("second", self._attaches, patience_s)
        self.program: Program
        self._command = command
        self._count = ROWS if role == "publisher" else NEVER
        self._folder = folder

    async def __aenter__(self) -> Self:
        """Both routers listen, and the program runs."""
        await self.first.start()
        await self.second.start()
        urls = f"{self.first.url},{self.second.url}"
        arguments = [urls, TOPIC, str(self._count), str(self._folder)]
        self.program = Program(self._command, arguments, self._folder, self.patience_s)
        try:
            await self.program.start()
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """The program is killed."""
        await self._end()

    async def _end(self) -> None:
        await self.program.kill()
        await self.first.close()
        await self.second.close()

    async def next_attach(self) -> tuple[Visit, Link] | None:
        """The client's next attach, wherever it comes; None = its program has ended instead.

        Raises:
            BrokenClaim: neither happens.
        """
        coming = asyncio.create_task(self._attaches.get())
        ending = asyncio.create_task(self.program.ended())
        await asyncio.wait([coming, ending], timeout=self.patience_s, return_when=asyncio.FIRST_COMPLETED)
        found, has_ended = coming.done(), ending.done()
        coming.cancel()
        ending.cancel()
        if not found and not has_ended:
            raise BrokenClaim("the client did not attach")
        return coming.result() if found else None

    async def attached(self) -> tuple[Visit, Link]:
        """The client's next attach.

        Raises:
            BrokenClaim: none comes.
        """
        found = await self.next_attach()
        if found is None:
            raise BrokenClaim(f"the program has ended{self.program.complaint()}")
        return found

    async def publisher(self) -> FromPublisher:
        """The next attach, of a publisher that asks for exactly once."""
        return self.as_publisher(*await self.attached())

    def as_publisher(self, visit: Visit, wire: Link) -> FromPublisher:
        """This attach, of a publisher that asks for exactly once."""
        require(isinstance(wire, ReceiverLink), "it attached a link that receives")
        assert isinstance(wire, ReceiverLink)
        link = FromPublisher(visit, wire)
        link.check_terms()
        return link

    async def subscriber(self) -> ToSubscriber:
        """The next attach, of a subscriber that asks for exactly once."""
        visit, wire = await self.attached()
        require(isinstance(wire, SenderLink), "it attached a link that sends")
        assert isinstance(wire, SenderLink)
        link = ToSubscriber(visit, wire)
        link.check_terms()
        return link

    async def steals(self, most: int) -> None:
        """Another process takes the link whenever the client attaches it: it has to stop, and not fight for it."""
        for _ in range(most):
            try:
                found = await self.next_attach()
            except BrokenClaim:
                return  # it does not attach any more
            if found is None:
                return
            visit, wire = found
            if isinstance(wire, ReceiverLink):
                publisher = FromPublisher(visit, wire)
                publisher.reply()
                publisher.detach(LINK_STOLEN)
            elif isinstance(wire, SenderLink):
                subscriber = ToSubscriber(visit, wire)
                await subscriber.grant()
                subscriber.detach(LINK_STOLEN)
        raise BrokenClaim(f"it attached {most} times, though another process stole the link each time")
