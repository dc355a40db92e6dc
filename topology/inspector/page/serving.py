"""Serves the inspector's page: a fixed set of small files, held in memory, under a strict security policy.

Names of topics and subscriptions come from clients, and the page shows them to operators who may change things. So the
policy lets the browser run nothing but these files, and forbids turning text into HTML altogether (Trusted Types).
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from aiohttp import hdrs, web

from topology.inspector.schema.catalogue import page_module

FOLDER = Path(__file__).parent / "files"
PAGE = "index.html"
PREFIX = "/inspector/"
LOGIN = "/login"
"""At the top: a browser sends a login to what lies beside or below the address that asked for it (RFC 7617 section
2.2), and the API must get it, too."""
SCHEMA = "schema.js"
"""The columns of the tables: the one file that is written from the schema, not read from the folder."""
LIBRARY = "vendor/cytoscape.esm.min.mjs"
"""Draws the map; fetched when the package is built. Without it the page shows tables only, and says so."""

_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".svg": "image/svg+xml",
}
"""Types of files that are served; others are not (licences, Python)."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    # A router of another release may answer next time at this address: always ask, most often for a 304.
    hdrs.CACHE_CONTROL: "no-cache",
    hdrs.VARY: hdrs.ACCEPT_ENCODING,
}


@dataclass(frozen=True, slots=True)
class PageFile:
    """One file as it is sent."""

    content_type: str
    plain: bytes
    packed: bytes
    """The same, gzipped."""
    etag: str


async def page(request: web.Request) -> web.StreamResponse:
    """The page itself."""
    return _answer(request, _files()[PAGE])


async def file(request: web.Request) -> web.StreamResponse:
    """A file of the page, by the part `name` of its path."""
    found = _files().get(request.match_info["name"])
    if found is None:
        fix = "reload the page; the router may be of another release now"
        return web.json_response({"error": "the page has no such file", "fix": fix}, status=404, headers=HEADERS)
    return _answer(request, found)


async def login(request: web.Request) -> web.StreamResponse:
    """For a route that needs the role operator: the browser asks for a login, then returns to the page."""
    return web.Response(status=303, headers={hdrs.LOCATION: "/", **HEADERS})


def _answer(request: web.Request, found: PageFile) -> web.Response:
    headers = {hdrs.ETAG: f'"{found.etag}"', **HEADERS}
    if any(tag.value == found.etag for tag in request.if_none_match or ()):
        return web.Response(status=304, headers=headers)
    body = found.plain
    if "gzip" in request.headers.get(hdrs.ACCEPT_ENCODING, ""):
        body = found.packed
        headers[hdrs.CONTENT_ENCODING] = "gzip"
    return web.Response(body=body, content_type=found.content_type, charset="utf-8", headers=headers)


@cache
def _files() -> dict[str, PageFile]:
    """All files by their path in the folder. Read once: no part of a request becomes a path on disk."""
    found = {SCHEMA: _packed(_TYPES[".js"], page_module().encode())}
    for path in sorted(FOLDER.rglob("*")):
        content_type = _TYPES.get(path.suffix)
        if content_type is None or not path.is_file():
            continue
        found[path.relative_to(FOLDER).as_posix()] = _packed(content_type, path.read_bytes())
    return found


def _packed(content_type: str, plain: bytes) -> PageFile:
    return PageFile(content_type, plain, gzip.compress(plain, 6, mtime=0), hashlib.sha256(plain).hexdigest()[:20])
