"""What the stores that talk to a real etcd promise beyond the conformance suite: several members, logins, TLS."""

from __future__ import annotations

import asyncio
import shutil
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest
import trustme

from tests.support.stores import (
    DEADLINE_S,
    ETCD_STORES,
    QUICK_TIMEOUT_S,
    EtcdClientOptions,
    OpenEtcdStore,
    TlsFiles,
    enable_login,
    next_batch,
    post,
    watch_events,
)
from tests.support.waiting import eventually
from topology.etcd.members import CALL_TIMEOUT_S, WATCH_SILENCE_S
from topology.etcd.server import EtcdCluster, EtcdServer, free_port
from topology.etcd.store import (
    ABSENT,
    UNCONDITIONAL,
    ClusterStore,
    EventKind,
    StoreAuthError,
    StoreRejected,
    StoreReplaced,
    StoreTimeout,
    StoreUnavailable,
    Write,
)


@pytest.fixture(params=["gateway", pytest.param("etcd3", marks=pytest.mark.slow)])
def open_store(request: pytest.FixtureRequest) -> OpenEtcdStore:
    return ETCD_STORES[request.param]


@pytest.fixture(scope="module")
def shared_cluster() -> Iterator[EtcdCluster]:
    cluster = EtcdCluster(3)
    asyncio.run(cluster.__aenter__())
    yield cluster
    asyncio.run(cluster.__aexit__(None, None, None))


@pytest.fixture
async def three(shared_cluster: EtcdCluster) -> AsyncIterator[EtcdCluster]:
    """Three members, all of them well at the beginning of a test, and of one mind about their leader."""
    await leader_of(shared_cluster)
    yield shared_cluster
    for member in shared_cluster.members:
        if member.is_running:
            member.resume()
    dead = [member for member in shared_cluster.members if not member.is_running]
    await asyncio.gather(*(member.restart() for member in dead))


@pytest.fixture
def prefix() -> str:
    """Keys of one test."""
    return f"/t/{uuid.uuid4().hex}/"


# --- several members


async def put_until_applied(store: ClusterStore, key: str, value: bytes) -> None:
    async def applied() -> bool:
        try:
            await store.compare_and_put(key, value, UNCONDITIONAL)
        except (StoreTimeout, StoreUnavailable):
            return False
        return True

    await eventually(applied, f"{key} is written")


async def leader_of(cluster: EtcdCluster) -> tuple[EtcdServer, list[str]]:
    """The member all see as the leader, and the ids of the others."""
    ids: dict[str, EtcdServer] = {}
    leaders: set[str] = set()

    async def is_agreed() -> bool:
        leaders.clear()
        for member in cluster.members:
            status = await post(member.urls[0], "maintenance/status", {})
            header = status["header"]
            assert isinstance(header, dict)
            ids[str(header["member_id"])] = member
            leaders.add(str(status.get("leader", "none")))
        return len(leaders) == 1 and leaders <= set(ids)

    await eventually(is_agreed, "all members see one leader")
    (leader,) = leaders
    return ids[leader], [member_id for member_id in ids if member_id != leader]


async def move_leader(cluster: EtcdCluster) -> None:
    """Hand the leadership over in good order."""
    leader, others = await leader_of(cluster)
    await post(leader.urls[0], "maintenance/transfer-leadership", {"targetID": others[0]})

    async def is_moved() -> bool:
        return (await leader_of(cluster))[0] is not leader

    await eventually(is_moved, "another member leads")


async def kill_leader(cluster: EtcdCluster) -> None:
    """The others elect a new one after their election time-out."""
    leader, _ = await leader_of(cluster)
    await leader.kill()


@pytest.mark.parametrize("change", [move_leader, kill_leader], ids=lambda change: change.__name__)
async def test_no_event_is_missed_when_another_member_leads(
    three: EtcdCluster, prefix: str, open_store: OpenEtcdStore, change: Callable[[EtcdCluster], Awaitable[None]]
) -> None:
    store, writer = open_store(three.urls), open_store(three.urls)
    lease = await store.grant_lease(60)
    revision, _ = await store.snapshot(prefix)
    async with aclosing(store.watch(prefix, revision + 1)) as batches:
        await put_until_applied(writer, prefix + "0", b"")
        await change(three)
        for number in range(1, 6):
            await put_until_applied(writer, f"{prefix}{number}", b"")
        seen: list[str] = []
        while prefix + "5" not in seen:
            seen += [event.key for event in (await next_batch(batches)).events]
    # A write of unknown fate may have been applied, and so appear twice; none may be missing.
    assert list(dict.fromkeys(seen)) == [f"{prefix}{number}" for number in range(6)]
    assert await store.keep_alive(lease) > 0
    await store.close()
    await writer.close()


async def test_calls_and_watch_go_on_at_another_member_when_theirs_is_killed(
    three: EtcdCluster, prefix: str, open_store: OpenEtcdStore
) -> None:
    store, writer = open_store(three.urls), open_store(three.urls)
    revision, _ = await store.snapshot(prefix)
    async with aclosing(store.watch(prefix, revision + 1)) as batches:
        await writer.compare_and_put(prefix + "0", b"", ABSENT)
        assert [event.key for event in (await next_batch(batches)).events] == [prefix + "0"]
        await three.members[0].kill()
        for number in range(1, 6):
            await put_until_applied(writer, f"{prefix}{number}", b"")
        seen: list[str] = []
        while prefix + "5" not in seen:
            seen += [event.key for event in (await next_batch(batches)).events]
    assert list(dict.fromkeys(seen)) == [f"{prefix}{number}" for number in range(1, 6)]
    await store.close()
    await writer.close()


async def test_a_stalled_etcd_member_is_replaced_by_another(
    three: EtcdCluster, prefix: str, open_store: OpenEtcdStore
) -> None:
    store, writer = open_store(three.urls), open_store(three.urls[1:])
    lease = await store.grant_lease(60)
    revision, _ = await store.snapshot(prefix)
    async with aclosing(store.watch(prefix, revision + 1)) as batches:
        await writer.compare_and_put(prefix + "0", b"", ABSENT)
        await next_batch(batches)
        # Its connections stay open: only its silence shows it.
        three.members[0].pause()
        await put_until_applied(writer, prefix + "1", b"")
        assert (await next_batch(batches)).events[0].key == prefix + "1"
    # Reads and keep-alives are asked elsewhere within one call.
    assert await store.keep_alive(lease) > 0
    three.members[0].resume()
    await store.close()
    await writer.close()


async def test_a_member_without_a_quorum_says_so_instead_of_falling_silent(
    three: EtcdCluster, prefix: str, open_store: OpenEtcdStore
) -> None:
    store = open_store(three.urls)
    revision, _ = await store.snapshot(prefix)
    for member in three.members[1:]:
        await member.kill()
    with pytest.raises((StoreTimeout, StoreUnavailable)):
        await store.compare_and_put(prefix + "a", b"", ABSENT)
    with pytest.raises(StoreUnavailable):
        await store.get(prefix + "a")
    await asyncio.gather(*(member.restart() for member in three.members[1:]))
    await put_until_applied(store, prefix + "b", b"")
    events = await watch_events(store, prefix, revision + 1, 1)
    assert events[0].key in (prefix + "a", prefix + "b")
    await store.close()


async def test_a_watch_leaves_a_member_that_has_lost_its_leader(
    three: EtcdCluster, prefix: str, open_store: OpenEtcdStore
) -> None:
    called = asyncio.Event()

    async def note(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        called.set()
        writer.close()
        await writer.wait_closed()

    other = await asyncio.start_server(note, "127.0.0.1", 0)
    port = other.sockets[0].getsockname()[1]
    patient = EtcdClientOptions(call_timeout_s=CALL_TIMEOUT_S, watch_silence_s=WATCH_SILENCE_S)
    store = open_store([*three.members[0].urls, f"http://127.0.0.1:{port}"], patient)
    put = await store.compare_and_put(prefix + "a", b"", ABSENT)
    async with other, aclosing(store.watch(prefix, put.revision)) as batches:
        await next_batch(batches)
        for member in three.members[1:]:
            member.pause()
        # It serves watches on, alone, and nothing would ever come: what shows it is its answer `no leader`.
        going_on = asyncio.create_task(anext(batches))
        async with asyncio.timeout(DEADLINE_S):
            await called.wait()
        going_on.cancel()
        await asyncio.gather(going_on, return_exceptions=True)
    await store.close()


async def test_a_dead_address_costs_little_when_another_works(etcd: EtcdServer, open_store: OpenEtcdStore) -> None:
    dead = f"http://127.0.0.1:{free_port()}"
    store = open_store([dead, *etcd.urls])
    assert (await store.compare_and_put("/dead/a", b"", UNCONDITIONAL)).succeeded
    await store.close()


async def test_endpoints_of_two_clusters_are_noticed(etcd: EtcdServer, open_store: OpenEtcdStore) -> None:
    async with EtcdServer() as other:
        store = open_store([*other.urls, *etcd.urls])
        await store.get("/a")
        await other.kill()
        with pytest.raises(StoreReplaced, match="cluster"):
            await store.get("/a")
        await store.close()


async def test_an_etcd_whose_revisions_went_back_is_noticed_by_calls_and_by_a_watch(open_store: OpenEtcdStore) -> None:
    async with EtcdServer(name="one", members={"one": free_port()}) as etcd:
        store, watcher = open_store(etcd.urls), open_store(etcd.urls)
        revision, _ = await watcher.snapshot("/t/")
        async with aclosing(watcher.watch("/t/", revision + 1)) as batches:
            for _ in range(5):
                await store.compare_and_put("/t/a", b"", UNCONDITIONAL)
                await next_batch(batches)
            await etcd.kill()
            shutil.rmtree(etcd.data_folder)
            await etcd.restart()
            # Otherwise it would wait for a revision that is long past, and then miss all up to it.
            with pytest.raises(StoreReplaced, match="new-nonce"):
                await next_batch(batches)
        with pytest.raises(StoreReplaced, match="new-nonce"):
            await store.get("/t/a")
        await store.close()
        await watcher.close()


async def test_a_peer_that_takes_connections_and_says_nothing_costs_one_time_out(open_store: OpenEtcdStore) -> None:
    connections: set[asyncio.StreamWriter] = set()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.add(writer)
        while await reader.read(1000):
            pass
        writer.close()
        await writer.wait_closed()
        connections.remove(writer)

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    store = open_store([f"http://127.0.0.1:{port}"], EtcdClientOptions(call_timeout_s=0.2))
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(StoreTimeout):
            await store.compare_and_put("/a", b"", ABSENT)
        with pytest.raises(StoreUnavailable):
            await store.get("/a")
    await store.close()
    await eventually(lambda: not connections, "the client has hung up")
    server.close()


# --- login


def login(user: str, password: str = "") -> EtcdClientOptions:
    return EtcdClientOptions(user, password or f"{user}-password")


async def test_a_login_is_renewed_when_its_token_ends_for_calls_and_watch(open_store: OpenEtcdStore) -> None:
    async with EtcdServer(arguments=["--auth-token-ttl=1"]) as etcd:
        await enable_login(etcd.urls[0])
        store, writer = (open_store(etcd.urls, login("router")) for _ in range(2))
        revision, _ = await store.snapshot("/t/")
        async with aclosing(store.watch("/t/", revision + 1)) as batches:
            for number in range(2):
                await writer.compare_and_put("/t/a", str(number).encode(), UNCONDITIONAL)
                assert (await next_batch(batches)).events[0].value == str(number).encode()
                # Longer than a token lives, and the clients say nothing meanwhile; the watch is opened anew, too.
                await asyncio.sleep(1.2)
            # All tokens are forgotten when etcd restarts.
            await etcd.restart()
            await writer.compare_and_put("/t/a", b"after", UNCONDITIONAL)
            assert (await next_batch(batches)).events[0].value == b"after"
        lease = await writer.grant_lease(60)
        assert await store.keep_alive(lease) > 0
        await store.close()
        await writer.close()


async def test_where_etcd_takes_fewer_operations_the_whole_is_refused_and_each_alone_is_not(
    open_store: OpenEtcdStore,
) -> None:
    async with EtcdServer(arguments=["--max-txn-ops=8"]) as etcd:
        store = open_store(etcd.urls)
        writes = [Write(f"/t/{number}", b"", ABSENT) for number in range(10)]
        with pytest.raises(StoreRejected):
            await store.write_each(writes)
        assert (await store.snapshot("/t/"))[1] == []
        assert all([(await store.write_each([write])) == [True] for write in writes])
        await store.close()


async def test_a_user_with_permission_for_the_prefix_writes_and_reads_several_keys_together(
    open_store: OpenEtcdStore,
) -> None:
    async with EtcdServer() as etcd:
        await enable_login(etcd.urls[0])
        store = open_store(etcd.urls, login("router"))
        assert await store.write_each([Write("/t/a", b"1", ABSENT), Write("/t/b", b"2", ABSENT)]) == [True, True]
        found = await store.get_each(["/t/b", "/t/a"])
        assert [each and each.value for each in found] == [b"2", b"1"]
        assert (
            await store.write_each([Write(each.key, None, each.mod_revision) for each in found if each]) == [True] * 2
        )
        await store.close()


async def test_a_wrong_password_a_missing_login_and_a_missing_permission_are_reported_as_such(
    open_store: OpenEtcdStore,
) -> None:
    async with EtcdServer() as etcd:
        await enable_login(etcd.urls[0])
        for options, words in (
            (login("router", "wrong"), "does not accept user 'router'"),
            (EtcdClientOptions(), "wants a login"),
            (login("guest"), "permission denied"),
        ):
            store = open_store(etcd.urls, options)
            with pytest.raises(StoreAuthError, match=words):
                await store.compare_and_put("/t/a", b"", UNCONDITIONAL)
            with pytest.raises(StoreAuthError, match=words):
                await store.get("/t/a")
            async with aclosing(store.watch("/t/", 1)) as batches:
                with pytest.raises(StoreAuthError, match=words):
                    await next_batch(batches)
            await store.close()


# --- TLS


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def in_files(folder: Path, certificate: trustme.LeafCert) -> tuple[Path, Path]:
    chain, key = folder / "chain.pem", folder / "key.pem"
    chain.write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    certificate.private_key_pem.write_to_path(key)
    return chain, key


@pytest.fixture
async def etcd_with_mutual_tls(tmp_path: Path, authority: trustme.CA) -> AsyncIterator[tuple[EtcdServer, Path]]:
    """An etcd that shows a certificate and wants one, and the file of the authority of both."""
    ca = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(ca)
    folder = tmp_path / "etcd"
    folder.mkdir()
    chain, key = in_files(folder, authority.issue_cert("127.0.0.1"))
    arguments = [f"--cert-file={chain}", f"--key-file={key}", "--client-cert-auth", f"--trusted-ca-file={ca}"]
    async with EtcdServer(arguments=arguments) as etcd:
        yield etcd, ca


async def test_with_certificates_of_one_authority_calls_leases_and_watches_work(
    tmp_path: Path, authority: trustme.CA, etcd_with_mutual_tls: tuple[EtcdServer, Path], open_store: OpenEtcdStore
) -> None:
    etcd, ca = etcd_with_mutual_tls
    store = open_store(etcd.urls, EtcdClientOptions(tls=TlsFiles(ca, *in_files(tmp_path, authority.issue_cert("r1")))))
    lease = await store.grant_lease(60)
    put = await store.compare_and_put("/t/a", b"", ABSENT, lease)
    assert (await watch_events(store, "/t/", put.revision, 1))[0].kind is EventKind.PUT
    assert await store.keep_alive(lease) > 0
    await store.close()


async def test_without_a_certificate_etcd_trusts_nothing_goes_through(
    tmp_path: Path, etcd_with_mutual_tls: tuple[EtcdServer, Path], open_store: OpenEtcdStore
) -> None:
    etcd, ca = etcd_with_mutual_tls
    stranger = TlsFiles(ca, *in_files(tmp_path, trustme.CA().issue_cert("r1")))
    for tls in (TlsFiles(ca), stranger):
        store = open_store(etcd.urls, EtcdClientOptions(tls=tls))
        with pytest.raises((StoreUnavailable, StoreTimeout)):
            await store.compare_and_put("/t/a", b"", ABSENT)
        await store.close()


async def test_an_etcd_with_an_untrusted_certificate_is_not_spoken_to(
    tmp_path: Path, etcd_with_mutual_tls: tuple[EtcdServer, Path], open_store: OpenEtcdStore
) -> None:
    etcd, _ = etcd_with_mutual_tls
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(other)
    for tls in (None, TlsFiles(other)):
        store = open_store(etcd.urls, EtcdClientOptions(tls=tls, call_timeout_s=5 * QUICK_TIMEOUT_S))
        with pytest.raises(StoreUnavailable, match=r"(?i)certificate"):
            await store.get("/t/a")
        await store.close()
