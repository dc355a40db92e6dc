"""Parts of TLS one by one: the page's settings, redirects, lists of revoked certificates, flow over TLS transports."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from delivery_records.model.view import RouterRecord
from oncewire.client.failover import parse_url, reported_address
from oncewire.transport.accepting import port_of
from oncewire.transport.connecting import connect
from oncewire.transport.file_watch import FileWatch
from oncewire.transport.tls import TlsFiles, rotating_client_context, server_context
from oncewire.wire import Connection, Fields, Role
from oncewire.wire.vocabulary import FAILOVER_LIST
from router.authentication.revocation_core import MalformedDerError, certificate_id, revoked_in
from router.clients.redirect import LIST_BYTES, redirect_info, server_list
from router.process.listening import listen
from router.settings.config_loading import load
from tests.router.plain_flow import HIGH_BYTES, Flow
from tests.support.certificates import TestAuthority

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
DEADLINE_S = 60.0
CHUNK = bytes(1 << 16)


def test_the_settings_of_the_page_are_accepted_together(tmp_path: Path) -> None:
    found = re.search(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    file = tmp_path / "router.toml"
    file.write_text(found[1])
    config = load(str(file), {}, {}).config
    assert (config.listen_tls, config.inter_router_tls, config.http_tls) == (True, True, True)
    assert config.tls_client_certificates == "required"


# --- redirects --------------------------------------------------------------------------------------------------------

SECURED = RouterRecord("r1", 1, amqp="amqps://one.example:5671")
PLAIN = RouterRecord("r2", 2, amqp="amqp://two.example:5672")


@pytest.mark.parametrize(
    ("base", "target", "address"),
    [
        ("amqps://me", SECURED, "amqps://one.example:5671"),
        ("amqp://me", SECURED, "amqps://one.example:5671"),
        ("amqps://me", PLAIN, "amqps://two.example:5672"),  # TLS may end in front of it; it never becomes plain
        ("amqp://me", PLAIN, "amqp://two.example:5672"),
    ],
)
def test_a_client_follows_a_redirect_to_tls_and_never_from_it(base: str, target: RouterRecord, address: str) -> None:
    assert str(reported_address(redirect_info(target), parse_url(base))) == address
    assert [str(reported_address(entry, parse_url(base))) for entry in server_list([target], 0)] == [address]


@pytest.mark.parametrize(
    ("base", "info", "address"),
    [
        ("wss://me/amqp", {"network-host": "two", "port": 443, "scheme": "wss"}, "wss://two:443/amqp"),
        ("ws://me", {"network-host": "two", "port": 8080, "scheme": "wss"}, "wss://two:8080/amqp"),
        ("wss://me", {"network-host": "two", "port": 80, "scheme": "ws"}, "None"),
        ("wss://me", redirect_info(PLAIN), "None"),  # nobody says that a WebSocket is there
        ("wss://me", redirect_info(SECURED), "None"),
        ("amqp://me", {"network-host": "two", "port": 443, "scheme": "wss"}, "None"),
    ],
)
def test_a_client_by_websocket_follows_redirects_to_websockets_only(
    base: str, info: dict[str, object], address: str
) -> None:
    assert str(reported_address(info, parse_url(base))) == address


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("ws://one", "ws://one:80/amqp"),
        ("wss://u:p@one:8672", "wss://one:8672/amqp"),
        ("wss://[::1]:8672/", "wss://[::1]:8672/"),
        ("ws://one/$servicebus/websocket", "ws://one:80/$servicebus/websocket"),
    ],
)
def test_the_url_of_a_websocket_may_name_a_path(url: str, address: str) -> None:
    assert str(parse_url(url)) == address


def test_the_failover_list_has_room_for_the_scheme_within_its_bytes() -> None:
    others = [RouterRecord(f"r{n}", n, amqp=f"amqps://router-{n}.example.org:5671") for n in range(1, 20)]
    reported: Fields = {FAILOVER_LIST: server_list(others, 0)}
    engine = Connection(Role.SERVER, container_id="r", properties=reported, now=0)
    bare = Connection(Role.SERVER, container_id="r", properties={}, now=0)
    for each in (engine, bare):
        each.open()
    assert len(engine.data_to_send()) - len(bare.data_to_send()) <= LIST_BYTES + len(FAILOVER_LIST) + 16


# --- files that are replaced ------------------------------------------------------------------------------------------


def test_files_are_read_again_when_nobody_is_at_them_any_more(tmp_path: Path) -> None:
    certificate, key = tmp_path / "own.pem", tmp_path / "own-key.pem"
    certificate.write_bytes(b"1")
    watch = FileWatch([certificate, key])
    assert not watch.look()
    key.write_bytes(b"1")
    assert not watch.look()  # somebody is at it
    certificate.write_bytes(b"22")
    assert not watch.look()
    assert watch.look()
    assert not watch.look()  # once
    key.unlink()
    assert [watch.look(), watch.look(), watch.look()] == [False, True, False]
    certificate.write_bytes(b"333")
    watch.note()  # read on a signal
    assert [watch.look(), watch.look()] == [False, False]


def test_a_link_that_leads_elsewhere_is_another_file(tmp_path: Path) -> None:
    for name in ("first", "second"):  # as Kubernetes mounts secrets
        (tmp_path / name).mkdir()
        (tmp_path / name / "own.pem").write_bytes(b"1")
    data = tmp_path / "..data"
    data.symlink_to("first")
    (tmp_path / "own.pem").symlink_to("..data/own.pem")
    watch = FileWatch([tmp_path / "own.pem"])
    (tmp_path / "fresh").symlink_to("second")
    (tmp_path / "fresh").rename(data)
    assert [watch.look(), watch.look()] == [False, True]


def test_a_client_reads_replaced_files_before_its_next_connection_and_keeps_the_old_pair_meanwhile(
    tmp_path: Path,
) -> None:
    authority = TestAuthority(tmp_path / "one")
    own = authority.issue("own")
    faults: list[str] = []
    context = rotating_client_context(TlsFiles(authority.file, own.certificate, own.key), on_fault=faults.append)

    def used() -> ssl.SSLContext:
        return context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="localhost").context

    first = used()
    assert used() is first
    fresh = TestAuthority(tmp_path / "two").issue("own")
    own.certificate.write_bytes(fresh.certificate.read_bytes())  # its key comes later
    assert used() is used() is first
    assert len(faults) == 1
    assert str(own.certificate) in faults[0]
    own.key.write_bytes(fresh.key.read_bytes())
    second = used()
    assert second is not first
    assert used() is second
    assert len(faults) == 1
    assert second.verify_mode is ssl.CERT_REQUIRED
    assert second.check_hostname


# --- revocation -------------------------------------------------------------------------------------------------------


def der_of(path: Path) -> bytes:
    return x509.load_pem_x509_certificate(path.read_bytes()).public_bytes(Encoding.DER)


def test_a_list_revokes_the_certificates_that_its_authority_names_and_no_others(tmp_path: Path) -> None:
    authority, other = TestAuthority(tmp_path / "one"), TestAuthority(tmp_path / "two")
    first, second, third = (authority.issue(name) for name in ("first", "second", "third"))
    lists = authority.revoke(first.number, second.number) + other.revoke(third.number)
    revoked = revoked_in(lists.decode())
    assert len(revoked) == 3
    names = [certificate_id(der_of(each.certificate)) in revoked for each in (first, second, third)]
    assert names == [True, True, False]  # the third number is another authority's
    assert revoked_in(authority.revoke().decode()) == frozenset()


@pytest.mark.parametrize("cut", [1, 5, 40, 100])
def test_what_is_no_certificate_and_no_list_is_refused(tmp_path: Path, cut: int) -> None:
    der = der_of(TestAuthority(tmp_path / "one").issue("first").certificate)
    with pytest.raises(MalformedDerError):
        certificate_id(der[:cut])
    with pytest.raises(MalformedDerError):
        revoked_in("-----BEGIN X509 CRL-----\nMAAx\n-----END X509 CRL-----")


# --- transports -------------------------------------------------------------------------------------------------------


async def slow_reader(authority: TestAuthority) -> None:
    """A peer that does not read makes the writer wait; it goes on when the peer reads, and abort ends both."""
    own = authority.issue("own")
    accepted: asyncio.Future[Flow] = asyncio.get_running_loop().create_future()

    class Accepted(Flow):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            accepted.set_result(self)

    context = server_context(TlsFiles(None, own.certificate, own.key), ssl.CERT_NONE)
    server = await listen(Accepted, "127.0.0.1", 0, "--port", context)
    async with asyncio.timeout(DEADLINE_S):
        reader = Flow()
        await connect(reader, "127.0.0.1", port_of(server), DEADLINE_S, authority.context())
        writer = await accepted
        assert writer.peer_certificate is None
        assert reader.peer_certificate is not None
        reader.transport.pause_reading()
        assert not reader.transport.is_reading()
        written = 0
        while not writer.is_behind:
            writer.transport.write(CHUNK)
            written += len(CHUNK)
            await asyncio.sleep(0)
        assert writer.transport.get_write_buffer_size() > HIGH_BYTES
        writer.caught_up.clear()
        reader.transport.resume_reading()
        await writer.caught_up.wait()
        writer.abort()
        await asyncio.wait([reader.closed, writer.closed])
        assert len(reader.read) <= written
    server.close()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_writer_over_tls_waits_for_a_slow_reader_and_abort_ends_the_connection(
    run: Callable[..., None], tmp_path: Path
) -> None:
    run(slow_reader(TestAuthority(tmp_path / "pki")))
