"""Sends requests to the other routers over HTTP, and returns which of them did not reply."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import aiohttp
from yarl import URL

from topology.inspector.rows_core import Row
from topology.inspector.source import OtherRouter

ANSWER_S = 2.0
"""A router that has stopped or is stalled must not delay the others' replies."""
ALL_ANSWERS_S = 6.0
"""For all routers together: the longest a caller waits."""
AT_ONCE = 16
"""Concurrent requests."""
MAX_ANSWER_BYTES = 4 << 20
"""500 rows are less than 1 MB."""


TlsOf: TypeAlias = Callable[[], ssl.SSLContext | None]


def no_tls() -> None:
    """Python's default, as far as there is https."""


StateCaller: TypeAlias = Callable[[OtherRouter, str], Mapping[str, str]]
"""Headers that state to a router who asks for this path and query."""


def nobody(_router: OtherRouter, _target: str) -> Mapping[str, str]:
    """Somebody without login asks."""
    return {}


async def ask_others(
    others: Sequence[OtherRouter],
    path: str,
    query: Mapping[str, str],
    caller: StateCaller,
    tls: ssl.SSLContext | None = None,
) -> tuple[list[dict[str, Any]], list[Row]]:
    """Sends the same request to each of these routers: see `ask_each`."""
    return await ask_each([(other, query) for other in others], path, caller, tls)


async def ask_each(
    questions: Sequence[tuple[OtherRouter, Mapping[str, str]]],
    path: str,
    caller: StateCaller,
    tls: ssl.SSLContext | None = None,
) -> tuple[list[dict[str, Any]], list[Row]]:
    """Sends requests to routers, several at a time.

    Args:
        questions: who is asked, with which parameters.
        path: below a router's HTTP address.
        caller: states who asks. The login itself goes nowhere: an address is what a key in etcd says.
        tls: for https; None = Python's default.

    Returns:
        The answers, and who is missing: `{"router", "rid", "why"}`.
    """
    answers: list[dict[str, Any]] = []
    missing: dict[str, Row] = {other.rid: _missing(other, "not asked in time") for other, _ in questions}
    turns = asyncio.Semaphore(AT_ONCE)

    async def ask(session: aiohttp.ClientSession, other: OtherRouter, query: Mapping[str, str]) -> None:
        if not other.http:
            missing[other.rid] = _missing(other, "it serves no HTTP (http.host is empty)")
            return
        async with turns:
            try:
                async with asyncio.timeout(ANSWER_S):
                    target = URL.build(path=path, query=query).raw_path_qs
                    url = URL(other.http.rstrip("/") + target, encoded=True)
                    answers.append(await _get(session, url, caller(other, target)))
                del missing[other.rid]
            except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
                missing[other.rid] = _missing(other, _reason(error))

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls or True)) as session:
        tasks = [asyncio.ensure_future(ask(session, other, query)) for other, query in questions]
        try:
            if tasks:
                await asyncio.wait(tasks, timeout=ALL_ANSWERS_S)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    return answers, list(missing.values())


async def _get(session: aiohttp.ClientSession, url: URL, headers: Mapping[str, str]) -> dict[str, Any]:
    async with session.get(url, headers=headers, allow_redirects=False) as answer:
        body = bytearray()
        async for piece in answer.content.iter_any():
            body += piece
            if len(body) > MAX_ANSWER_BYTES:
                raise ValueError("its answer is too long")
        if answer.status != 200:
            raise ValueError(f"it answered HTTP {answer.status}")
    found = json.loads(body)
    if not isinstance(found, dict):
        raise ValueError("its answer is no JSON object")
    return found


def _missing(other: OtherRouter, why: str) -> Row:
    return {"router": other.id, "rid": other.rid, "why": why}


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {ANSWER_S:g} s"
    if isinstance(error, json.JSONDecodeError):
        return "its answer is no JSON"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"cannot connect to {error.host}:{error.port}"
    return str(error) or type(error).__name__
