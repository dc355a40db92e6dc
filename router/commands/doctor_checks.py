"""What `oncewire doctor` looks at: each check says what it found, and what to do about it."""

from __future__ import annotations

import asyncio
import email.utils
import os
import re
import resource
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path

import aiohttp

from oncewire.cli.errors import CliError
from router.authentication.revocation_core import MalformedDerError, validity
from router.incarnations.store_setup import etcd_tls, store_factory
from router.process.admission import shares
from router.settings.config import RouterConfig
from topology.etcd.store import StoreError
from topology.members.cluster import ClusterState, read_cluster

ANSWER_S = 5.0
"""For one question to etcd; it takes milliseconds."""
OLDEST_ETCD = (3, 4)
"""The first with the JSON gateway under /v3 and watch progress as we use them."""
ETCD_FAULTS = (
    ((3, 5), "it is not tested with this version"),
    ((3, 5, 3), "its makers advise against 3.5.0 to 3.5.2: data of members can differ (etcd-io/etcd#13766)"),
    ((3, 5, 5), "alone and killed, it may forget a write that it answered (etcd-io/etcd#14370)"),
    ((3, 5, 13), "a slow watch may miss events while etcd compacts (etcd-io/etcd#17529)"),
)
"""What an etcd below a version does wrong, and no client can make good; the first row counts."""
SOON_DAYS = 21
"""A certificate that ends within it is to be replaced now: who does it needs days, not minutes."""
CLOCK_S = 5.0
"""Of difference. Deliveries do not depend on the time of day; certificates, tokens and the order of logs do."""
LISTENING = "0A"
"""The state of a listener in /proc/net/tcp."""
IS_ROUTER = re.compile(r"(?:^|\s)-m router(?:\s|$)|(?:^|/)oncewire router(?:\s|$)")
"""Command lines of routers; a path that only contains the project's name is none."""
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


class State(Enum):
    """How a check ended."""

    OK = "ok"
    WARNING = "warning"
    """It works, and will not for ever, or not for all."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found.

    Attributes:
        check: its name.
        state: how it ended.
        text: what was found.
        fix: what to do; empty if nothing.
    """

    check: str
    state: State
    text: str
    fix: str = ""


def check_descriptors(config: RouterConfig) -> Iterator[Finding]:
    """A router raises its limit to the hard one, and needs a descriptor for each connection."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = shares(config, hard)
    text = f"{hard:,} for each process; with limits.max_connections a router needs {found.wanted:,}"
    if found.is_short:
        fix = f"ulimit -n {found.wanted} (LimitNOFILE= of systemd), or lower limits.max_connections"
        yield Finding("descriptors", State.WARNING, text, fix)
    else:
        yield Finding("descriptors", State.OK, text)


def check_ports(config: RouterConfig) -> Iterator[Finding]:
    """Each listener's port is free, or a router has it."""
    listeners = [("listen.port", config.listen_host, config.listen_port)]
    if config.http_host:
        listeners.append(("http.port", config.http_host, config.http_port))
    if config.inter_router_port and not config.standalone:
        listeners.append(("inter_router.port", config.inter_router_host, config.inter_router_port))
    for setting, host, port in listeners:
        if port:
            yield _port(setting, host, port)


def _port(setting: str, host: str, port: int) -> Finding:
    check = f"port {port}"
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        return Finding(check, State.FAILED, f"{setting}: the host {host} has no address: {error}", "correct the host")
    for family, kind, protocol, _, address in found:
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(address)
            except PermissionError:
                return Finding(check, State.FAILED, f"{setting}: this user may not listen there", "take one above 1023")
            except OSError as error:
                holder, elsewhere = holder_of(port), f"set {setting} to another port"
                if holder is None:
                    return Finding(check, State.FAILED, f"{setting}: {error.strerror}", elsewhere)
                pid, program = holder
                if IS_ROUTER.search(program):
                    return Finding(check, State.OK, f"{setting}: process {pid} listens there, a router")
                text = f"{setting}: process {pid} listens there: {program}"
                return Finding(check, State.FAILED, text, f"stop it, or {elsewhere}")
    return Finding(check, State.OK, f"{setting}: free")


def holder_of(port: int) -> tuple[int, str] | None:
    """Process and command line that listen on a port; None = nobody does, or this user may not know."""
    inodes = set()
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in Path(f"/proc/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
                cells = line.split()
                if cells[3] == LISTENING and int(cells[1].rpartition(":")[2], 16) == port:
                    inodes.add(f"socket:[{cells[9]}]")
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            for descriptor in (process / "fd").iterdir():
                with suppress(OSError):
                    if str(descriptor.readlink()) in inodes:
                        words = (process / "cmdline").read_bytes().replace(b"\0", b" ")
                        return int(process.name), words.decode(errors="replace").strip()
    return None


def check_certificates(config: RouterConfig) -> Iterator[Finding]:
    """Files of TLS can be read, fit, and are valid for some time."""
    pairs = [("tls", config.tls_cert_file, config.tls_key_file), ("etcd", config.etcd_cert_file, config.etcd_key_file)]
    for name, certificate, key in pairs:
        if certificate:
            try:
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key or None, "")
            except (OSError, ssl.SSLError) as error:
                text = f"{name}.cert_file and {name}.key_file cannot be used: {error}"
                fix = "give PEM files, and a key that fits, without passphrase"
                yield Finding("certificate", State.FAILED, text, fix)
    files = [
        ("tls.cert_file", config.tls_cert_file),
        ("tls.ca_file", config.tls_ca_file),
        ("inter_router.ca_file", config.inter_router_ca_file),
        ("etcd.ca_file", config.etcd_ca_file),
        ("etcd.cert_file", config.etcd_cert_file),
    ]
    for setting, file in files:
        if file:
            yield _expiry(setting, Path(file), time.time())


def _expiry(setting: str, path: Path, now: float) -> Finding:
    """The certificate of a file that ends first."""
    check = f"certificate {path.name}"
    renew = "renew it, and put the new file in its place: routers read it by themselves"
    try:
        spans = [validity(ssl.PEM_cert_to_DER_cert(found)) for found in _PEM.findall(path.read_text("utf-8"))]
    except (OSError, ValueError, MalformedDerError) as error:
        return Finding(check, State.FAILED, f"{setting} cannot be read: {error}", "give a PEM file")
    if not spans:
        return Finding(check, State.FAILED, f"{setting}: {path} has no certificate", "give a PEM file")
    begins = max(_seconds(begin) for begin, _ in spans)
    ends = min(_seconds(end) for _, end in spans)
    until = datetime.fromtimestamp(ends, UTC).strftime("%Y-%m-%d")
    days = (ends - now) / 86400
    if begins > now:
        return Finding(check, State.FAILED, f"{setting}: it is not valid yet", "set this machine's clock")
    if days < 0:
        return Finding(check, State.FAILED, f"{setting}: it has ended on {until}", renew)
    text = f"{setting}: valid until {until}, {days:.0f} days"
    return Finding(check, State.WARNING, text, renew) if days < SOON_DAYS else Finding(check, State.OK, text)


def _seconds(time_of_der: str) -> float:
    return datetime.strptime(time_of_der, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


async def check_etcd(config: RouterConfig, installed: str, clock: Callable[[], float]) -> list[Finding]:
    """Etcd answers, its clock is ours, and what is in it belongs together."""
    try:
        tls = etcd_tls(config)
    except CliError as error:
        return [Finding("etcd", State.FAILED, f"{error.what}: {error.why}", error.fix)]
    found: list[Finding] = []
    timeout = aiohttp.ClientTimeout(total=ANSWER_S)
    connector = aiohttp.TCPConnector(ssl=tls or True)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        for endpoint in config.etcd_endpoints:
            found += await _member(session, endpoint, clock)
    if not any(each.state is not State.FAILED and each.check == "etcd" for each in found):
        return found
    try:
        async with asyncio.timeout(ANSWER_S):
            store = store_factory(config)()
            try:
                state = await read_cluster(store)
            finally:
                await store.close()
    except (StoreError, TimeoutError, CliError) as error:
        fix = "see etcd.user and etcd.password, and whether etcd has a leader (etcdctl endpoint status)"
        return [*found, Finding("network", State.FAILED, f"etcd cannot be read: {_reason(error)}", fix)]
    return [*found, *_network(state, installed)]


async def _member(session: aiohttp.ClientSession, endpoint: str, clock: Callable[[], float]) -> list[Finding]:
    fix = "start it, or correct etcd.endpoints (--etcd URL,...)"
    try:
        async with session.get(f"{endpoint.rstrip('/')}/version") as answer:
            version = str((await answer.json(content_type=None))["etcdserver"])
            date = answer.headers.get("Date", "")
    except (aiohttp.ClientError, ValueError, KeyError, TypeError, TimeoutError) as error:
        return [Finding("etcd", State.FAILED, f"{endpoint} does not answer: {_reason(error)}", fix)]
    found = [etcd_version(version, endpoint)]
    with suppress(ValueError, TypeError):
        seconds = abs(email.utils.parsedate_to_datetime(date).timestamp() - clock())
        text = f"{seconds:.0f} s apart from that of {endpoint}"
        is_off = seconds > CLOCK_S
        fix = "synchronize clocks (systemd-timesyncd, chrony): certificates, tokens and logs depend on them"
        found.append(Finding("clock", State.WARNING if is_off else State.OK, text, fix if is_off else ""))
    return found


def etcd_version(version: str, endpoint: str) -> Finding:
    """What is known of an etcd with this version."""
    number = tuple(int(part) for part in re.findall(r"\d+", version)[:3])
    text = f"{version} at {endpoint}"
    if number < OLDEST_ETCD:
        oldest = ".".join(map(str, OLDEST_ETCD))
        return Finding("etcd", State.FAILED, f"{text} is too old", f"take etcd {oldest} or newer")
    for fixed, fault in ETCD_FAULTS:
        if number < fixed:
            fix = "upgrade to the newest etcd 3.5, 3.6 or 3.7, member by member"
            return Finding("etcd", State.WARNING, f"{text} is for trying out: {fault}", fix)
    return Finding("etcd", State.OK, text)


def _reason(error: BaseException) -> str:
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else None
    if isinstance(cause, OSError) and cause.errno and cause.errno > 0:
        return os.strerror(cause.errno)
    return str(error) or type(error).__name__


def _network(state: ClusterState, installed: str) -> Iterator[Finding]:
    if state.why_restored:
        fix = "stop all routers and run `oncewire cluster new-nonce`"
        yield Finding("network", State.FAILED, f"its data have no new nonce: {state.why_restored}", fix)
    versions = Counter(record.version for record in state.routers.values())
    routers = f"{len(state.routers)} router{'s' if len(state.routers) != 1 else ''} live"
    if not versions:
        yield Finding("routers", State.OK, f"{routers}; start them with `oncewire router`")
        return
    listed = ", ".join(f"{count} of {version}" for version, count in sorted(versions.items()))
    if set(versions) == {installed}:
        yield Finding("routers", State.OK, f"{routers}, all of this version, {installed}")
    elif len(versions) == 1:
        fix = f"this is {installed}: upgrade one after the other (docs/operations.md, Stopping and upgrading)"
        yield Finding("routers", State.WARNING, f"{routers}: {listed}", fix)
    else:
        fix = "finish the upgrade: drain and start one router after the other with the same version"
        yield Finding("routers", State.WARNING, f"{routers}: {listed}", fix)
