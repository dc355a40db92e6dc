"""Requests to a router's HTTP side, with whatever headers a test wants to send."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import quote

import aiohttp
from yarl import URL

PREFIX = "/api/v1/management"


def login(user: str, password: str) -> dict[str, str]:
    """The header of HTTP Basic."""
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def entity(*names: str) -> str:
    """The path of an entity, or of an operation on it."""
    return "/".join([PREFIX, *(quote(name, safe="") for name in names)])


async def call(
    http: str, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
) -> tuple[int, Any]:
    """One request: status and content; text and bytes go as they are, anything else as JSON."""
    sent: dict[str, Any] = {"data": body} if isinstance(body, str | bytes) else {"json": body}
    if body is None:
        sent = {}
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, URL(http + path, encoded=True), headers=headers, **sent) as answer,
    ):
        is_json = answer.content_type == "application/json"
        return answer.status, await answer.json() if is_json else await answer.text()
