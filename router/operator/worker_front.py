"""One entry for all workers: the first one has the port for HTTP, speaks for all, and passes on what is for another.

Behind it each worker answers on a Unix socket, in a folder that nobody else may enter. There the first one states who
asks (`CALLER`), as it has found out at its own listener.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import aiohttp
from aiohttp import web

from router.operator.access import CALLER, Access, AccessDenied, Caller, Route, refusal, stated
from router.operator.metrics_merge_core import merged
from router.operator.stated_callers import STATED_CALLER
from router.settings.worker import Worker, name_of
from topology.inspector.schema.model import Role
from topology.inspector.watching import HEARTBEAT_S, MAX_WISH_BYTES

PREFIX = "/workers"
ANSWER_S = 2.0
"""A worker that is stalled is no reason to let a health check wait on."""
CHANGE_S = 20.0
"""For what is passed on: ending a subscription takes as long as etcd does."""
LOOK_S = 0.1
WATCH = "/api/v1/watch"
_NUMBER = "[1-9][0-9]?"
_DROPPED = frozenset(
    {"authorization", "connection", "content-length", "host", "keep-alive", "transfer-encoding", "upgrade"}
)
"""Headers that are about one connection, or about a login that has been checked."""


def path_of_worker(number: int) -> str:
    """Below the address for HTTP: where a worker's own answers are."""
    return f"{PREFIX}/{number}"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a worker has answered."""

    status: int
    body: bytes

    def rows(self) -> Mapping[str, object]:
        """Its JSON object; empty if it is none."""
        try:
            found = json.loads(self.body)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}


class WorkerFront:
    """The first worker's side of the others."""

    def __init__(self, worker: Worker, access: Access) -> None:
        """Ask nobody yet."""
        self._worker = worker
        self._access = access
        self._sessions: dict[int, aiohttp.ClientSession] = {}

    def routes(self) -> Iterable[Route]:
        """What is for one worker: below its path, or by its id at the management API."""
        others = "|".join(str(number) for number in range(2, self._worker.count + 1))
        router = f"/api/v1/management/router/{self._worker.group}-{{number:{others}}}/{{operation}}"
        for method in ("GET", "PUT", "POST", "DELETE"):
            yield Route(method, f"{PREFIX}/{{number:{_NUMBER}}}{{path:(?:/.*)?}}", self._pass_on, None)
        yield Route("POST", router, self._pass_on, None)

    async def stop(self) -> None:
        """Close the connections."""
        for session in self._sessions.values():
            await session.close()

    # --- for all ------------------------------------------------------------------------------------------------------

    async def healthz(self) -> web.Response:
        """Every worker's event loop turns."""
        answers = await self._ask_all("/healthz")
        silent = [name for name, answer in answers.items() if answer is None or answer.status != 200]
        found = {"status": "ok"} if not silent else {"status": "no answer", "workers": silent}
        return web.json_response(found, status=503 if silent else 200)

    async def readyz(self) -> web.Response:
        """Every worker takes clients."""
        missing: list[str] = []
        for name, answer in (await self._ask_all("/readyz")).items():
            waits = answer.rows().get("waiting_for") if answer is not None else ["its process"]
            missing += [f"{name}: {each}" for each in waits] if isinstance(waits, list) else [f"{name}: an answer"]
        return web.json_response({"ready": not missing, "waiting_for": missing}, status=503 if missing else 200)

    async def metrics(self) -> bytes:
        """Of all workers that answer."""
        answers = await self._ask_all("/metrics")
        pages = {name: answer.body.decode() for name, answer in answers.items() if answer and answer.status == 200}
        return merged(pages).encode()

    async def wait_for_drains(self, limit_s: float) -> None:
        """Answer on until the workers that drain have ended, too: whoever waits for all looks here."""
        ends_at = time.monotonic() + limit_s
        while time.monotonic() < ends_at:
            answers = await self._ask_all("/api/v1/state")
            own = self._worker.name
            if not any(a is not None and a.rows().get("draining") for name, a in answers.items() if name != own):
                return
            await asyncio.sleep(LOOK_S)

    async def _ask_all(self, path: str) -> dict[str, Answer | None]:
        numbers = range(1, self._worker.count + 1)
        answers = await asyncio.gather(*(self._ask(number, path) for number in numbers))
        return {name_of(self._worker.group, n): answer for n, answer in zip(numbers, answers, strict=True)}

    async def _ask(self, number: int, path: str) -> Answer | None:
        """A worker's answer; None = there is none."""
        try:
            async with (
                asyncio.timeout(ANSWER_S),
                self._session(number).get(_url(path), headers={CALLER: stated(Caller(Role.VIEWER))}) as got,
            ):
                return Answer(got.status, await got.read())
        except (aiohttp.ClientError, OSError, TimeoutError):
            return None

    def _session(self, number: int) -> aiohttp.ClientSession:
        if number not in self._sessions:
            connector = aiohttp.UnixConnector(self._worker.http_path(number), limit=0)  # as its listener says
            timeout = aiohttp.ClientTimeout(total=CHANGE_S)
            self._sessions[number] = aiohttp.ClientSession(
                connector=connector, timeout=timeout, auto_decompress=False, skip_auto_headers=("Accept-Encoding",)
            )
        return self._sessions[number]

    # --- for one ------------------------------------------------------------------------------------------------------

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        number = int(request.match_info["number"])
        path = request.raw_path.removeprefix(path_of_worker(number)) or "/"
        if number > self._worker.count or not path.startswith("/"):
            return refusal(404, f"there is no worker {number}", f"they are 1 to {self._worker.count}")
        try:
            # What a router states is addressed to the worker, who checks it.
            is_stated = STATED_CALLER in request.headers
            caller = Caller(Role.NONE) if is_stated else await self._access.caller_of(request)
        except AccessDenied as denied:
            return refusal(denied.status, str(denied), denied.fix)
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _DROPPED}
        headers[CALLER] = stated(caller)
        try:
            if web.WebSocketResponse().can_prepare(request).ok:
                return await self._watch(request, number, path, headers)
            return await self._answer_of(request, number, path, headers)
        except (aiohttp.ClientError, OSError, TimeoutError):
            name = name_of(self._worker.group, number)
            return refusal(503, f"{name} does not answer", "try again: it may be starting; the log says why it ended")

    async def _answer_of(
        self, request: web.Request, number: int, path: str, headers: Mapping[str, str]
    ) -> web.StreamResponse:
        body = await request.read()
        url = _url(path)
        async with self._session(number).request(
            request.method, url, headers=headers, data=body or None, allow_redirects=False
        ) as got:
            kept = {name: value for name, value in got.headers.items() if name.lower() not in _DROPPED}
            return web.Response(status=got.status, body=await got.read(), headers=kept)

    async def _watch(
        self, request: web.Request, number: int, path: str, headers: Mapping[str, str]
    ) -> web.StreamResponse:
        """The inspector's changes; clients by WebSocket connect to the first worker."""
        if not path.startswith(WATCH):
            return refusal(404, f"no WebSocket is passed on to {path}", f"connect to {WATCH}, or without {PREFIX}")
        kept = {name: value for name, value in headers.items() if not name.lower().startswith("sec-websocket")}
        async with self._session(number).ws_connect(_url(path), headers=kept, max_msg_size=0) as there:
            here = web.WebSocketResponse(heartbeat=HEARTBEAT_S, max_msg_size=MAX_WISH_BYTES, compress=False)
            await here.prepare(request)
            asking = asyncio.ensure_future(_pass_wishes(here, there))
            try:
                async for message in there:
                    if message.type is aiohttp.WSMsgType.TEXT:
                        await here.send_str(message.data)
            except ConnectionError:
                pass  # whoever watched is gone
            finally:
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
                await here.close()
        return here


async def _pass_wishes(here: web.WebSocketResponse, there: aiohttp.ClientWebSocketResponse) -> None:
    async for message in here:
        if message.type is aiohttp.WSMsgType.TEXT:
            await there.send_str(message.data)
    await there.close()


def _url(path: str) -> str:
    return f"http://worker{path}"  # the host is not looked up
