"""The asyncio client when routers die, fall silent, refuse, redirect, steal and forget."""

from __future__ import annotations

import asyncio
import random
import threading

import pytest

from oncewire.client import (
    AuthenticationFailed,
    Client,
    ClientEvent,
    Connected,
    ConnectFailed,
    Disconnected,
    Guarantee,
    JournalOwnerError,
    LinkActive,
    LinkRefused,
    LinkStolen,
    MemoryJournal,
    MessageTooLarge,
    NewIncarnation,
    OutcomeKind,
    SessionExpired,
    SubscriptionExpired,
    UsageError,
    connect,
)
from oncewire.wire import Symbol
from tests.client.shell_helpers import LONG, error, until
from tests.client.wire_server import Network, WireServer


async def test_links_resume_when_the_router_restarts_and_nothing_is_lost_or_doubled(network: Network) -> None:
    events: list[ClientEvent] = []
    async with WireServer(network) as server, connect(server.url, on_event=events.append) as client:
        publisher = await client.publisher("t", window=64)
        subscriber = await client.subscriber("t")
        received: list[object] = []

        async def receive() -> None:
            async for delivery in subscriber:
                if random.random() < 0.1:
                    await asyncio.sleep(0)
                received.append(delivery.body)
                await delivery.accept()

        async def publish() -> None:
            for number in range(3000):
                _ = await publisher.submit(b"%d" % number)

        async with asyncio.timeout(LONG):
            receiving = asyncio.create_task(receive())
            publishing = asyncio.create_task(publish())
            for kill in range(1, 5):
                await until(lambda kill=kill: len(received) > 500 * kill)  # type: ignore[misc]
                await server.kill()
                await server.start()
            await publishing
            await publisher.flush()
            await until(lambda: len(received) >= 3000)
            receiving.cancel()
        assert received == [b"%d" % number for number in range(3000)]
        assert client.statistics.connections == 5
        assert publisher.statistics.resumed_links + subscriber.statistics.resumed_links > 0
        assert client.statistics.longest_gap_s > 0
    assert sum(isinstance(event, Connected) for event in events) == 5
    assert sum(isinstance(event, Disconnected) for event in events) >= 4
    assert any(isinstance(event, LinkActive) and event.resumed for event in events)


async def test_the_next_address_is_tried_when_a_router_is_away(network: Network) -> None:
    async with (
        WireServer(network, "a") as first,
        WireServer(network, "b") as second,
        connect([first.url, second.url]) as client,
    ):
        publisher = await client.publisher("t")
        assert client._router_name.startswith("a at ")
        await first.kill()
        await publisher.send(b"x", timeout=LONG)
        assert client._router_name.startswith("b at ")


async def test_addresses_a_router_notifies_are_used_too(network: Network) -> None:
    async with WireServer(network, "a") as first, WireServer(network, "b") as second:
        entry = {Symbol("network-host"): "127.0.0.1", Symbol("port"): second.port, Symbol("scheme"): "amqp"}
        first.properties = {Symbol("failover-server-list"): [entry]}
        async with connect(first.url) as client:
            publisher = await client.publisher("t")
            await first.kill()
            await publisher.send(b"x", timeout=LONG)
            assert client._router_name.startswith("b at ")


async def test_a_connection_redirect_is_followed(network: Network) -> None:
    async with WireServer(network, "a") as first, WireServer(network, "b") as second, connect(first.url) as client:
        publisher = await client.publisher("t")
        redirect = error("amqp:connection:redirect", network_host="127.0.0.1", port=second.port)
        first.connections[0].engine.close(redirect)
        first.connections[0].flush()
        await until(lambda: client._router_name.startswith("b at "))
        await publisher.send(b"x", timeout=LONG)


async def test_a_router_that_cannot_serve_a_link_is_left_for_another(network: Network) -> None:
    async with WireServer(network, "a") as first, WireServer(network, "b") as second:
        first.refuse.extend([error("amqp:connection:forced", "no lease")] * 5)
        async with connect([first.url, second.url]) as client:
            await client.publisher("t")
            assert client._router_name.startswith("b at ")


async def test_a_client_stays_where_a_link_would_be_refused_by_every_router(network: Network) -> None:
    """Its other links are served; moving would lose them, for their attaches would be refused, too."""
    async with WireServer(network, "a") as first, WireServer(network, "b") as second:
        full = error("amqp:internal-error", "etcd is full", x_opt_topic_same_everywhere=True)
        async with connect([first.url, second.url]) as client:
            publisher = await client.publisher("t")
            first.refuse.extend([full] * 5)
            await client.publisher("u")
            assert not first.refuse
            assert client._router_name.startswith("a at ")
            await publisher.send(b"x", timeout=LONG)
            assert len(first.connections) == 1


async def test_a_router_that_takes_the_connection_and_says_nothing_is_left(network: Network) -> None:
    async with WireServer(network, "mute") as mute, WireServer(network, "b") as second:
        mute.is_silent = True
        async with connect([mute.url, second.url]) as client:
            assert client._router_name.startswith("b at ")


async def test_a_client_leaves_a_silent_router_after_the_idle_time_out(network: Network) -> None:
    async with (
        WireServer(network, "a") as first,
        WireServer(network, "b") as second,
        connect([first.url, second.url], idle_time_out=1.0) as client,
    ):
        publisher = await client.publisher("t")
        first.is_silent = True
        await publisher.send(b"x", timeout=LONG)
        assert client._router_name.startswith("b at ")


async def test_no_router_at_all_is_an_error_that_names_every_address() -> None:
    with pytest.raises(ConnectFailed, match=r"127\.0\.0\.1:1: .*127\.0\.0\.1:2: ") as caught:
        async with connect(["amqp://127.0.0.1:1", "amqp://127.0.0.1:2"], timeout=0.5):
            pass
    assert [address for address, _ in caught.value.attempts] == ["amqp://127.0.0.1:1", "amqp://127.0.0.1:2"]


async def test_a_wrong_password_is_an_error_at_once(server: WireServer) -> None:
    url = f"amqp://ann:wrong@127.0.0.1:{server.port}"
    with pytest.raises(AuthenticationFailed) as caught:
        _ = await connect(url)
    assert "wrong" not in str(caught.value)
    client = await connect(f"amqp://ann:secret@127.0.0.1:{server.port}")
    await client.close()


@pytest.mark.parametrize(
    "url", ["", "http://h", "amqp://", "amqp://h:x", "amqp://h/topic", "amqp://u@h", "amqp://u:p@h?x=1"]
)
def test_an_address_that_cannot_be_read_is_an_error_without_the_password(url: str) -> None:
    with pytest.raises(UsageError, match="no address"):
        _ = connect(url)


def test_no_address_is_an_error() -> None:
    with pytest.raises(UsageError, match="no router is named"):
        _ = connect([])


@pytest.mark.parametrize("condition", ["amqp:unauthorized-access", "amqp:not-found", "amqp:invalid-field"])
async def test_a_refusal_for_good_is_an_error_that_says_why(server: WireServer, condition: str) -> None:
    server.refuse.append(error(condition, "policy says no"))
    async with connect(server.url) as client:
        with pytest.raises(LinkRefused, match="policy says no") as caught:
            await client.publisher("t")
        assert caught.value.condition == condition
        await client.publisher("t")  # others are not affected


async def test_a_subscriber_that_is_refused_ends_no_subscription_first(
    server: WireServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oncewire.client.subscriber.BREAK_OFF_S", 3600.0)
    server.refuse.append(error("amqp:unauthorized-access", "policy says no"))
    async with connect(server.url) as client, asyncio.timeout(30):
        with pytest.raises(LinkRefused, match="policy says no"):
            await client.subscriber("t")


async def test_a_passing_refusal_is_tried_again(server: WireServer) -> None:
    server.refuse.extend([error("amqp:link:detach-forced"), error("amqp:resource-limit-exceeded")])
    async with connect(server.url) as client:
        subscriber = await client.subscriber("t")
        assert len(server.presented) == 3
        await subscriber.close()


async def test_a_link_that_is_stolen_again_and_again_is_given_up(server: WireServer) -> None:
    server.refuse.extend([error("amqp:link:stolen")] * 10)
    async with connect(server.url, container_id="shop") as client:
        with pytest.raises(LinkStolen, match="shop"):
            await client.publisher("t", name="p")
    assert len(server.presented) == 3


class SharedJournal(MemoryJournal):
    """P-b: another process may have taken it over."""

    is_shared = True

    def __init__(self) -> None:
        super().__init__()
        self.may_look = threading.Event()
        self.was_taken = False

    def check_owner(self) -> None:
        assert self.may_look.wait(60)
        if self.was_taken:
            raise JournalOwnerError("the journal cannot be used", "another process has taken it over", "stand by")


async def test_a_link_that_was_stolen_is_attached_again_only_while_its_shared_journal_is_ours(
    server: WireServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Client, "_jitter", lambda _client, _refusals: 0.0)
    journal = SharedJournal()
    server.refuse.append(error("amqp:link:stolen"))
    async with connect(server.url, container_id="shop") as client:
        opening = asyncio.create_task(client.publisher("t", name="p", journal=journal).__aenter__())
        await until(lambda: bool(server.presented))
        for _ in range(3):  # who waits for its journal holds nobody up, and attaches nothing
            await (await client.publisher("u")).close()
        assert [name for name, _ in server.presented].count("p") == 1
        journal.may_look.set()
        publisher = await opening
        assert [name for name, _ in server.presented].count("p") == 2
        await publisher.close()


async def test_a_link_whose_shared_journal_was_taken_over_takes_nothing_back(server: WireServer) -> None:
    journal = SharedJournal()
    journal.may_look.set()
    journal.was_taken = True
    server.refuse.append(error("amqp:link:stolen"))
    async with connect(server.url, container_id="shop") as client:
        with pytest.raises(JournalOwnerError, match="another process has taken it over"):
            await client.publisher("t", name="p", journal=journal)
        await (await client.publisher("u")).close()
        assert [name for name, _ in server.presented].count("p") == 1


async def test_a_router_without_the_capability_is_refused_unless_asked_for(server: WireServer) -> None:
    server.capable = False
    async with connect(server.url) as client:
        with pytest.raises(LinkRefused, match="topic-exactly-once"):
            await client.publisher("t")
        with pytest.raises(LinkRefused, match="topic-exactly-once"):
            await client.subscriber("t")
        with pytest.raises(LinkRefused, match="timeout=None"):
            await client.subscriber("t", exactly_once=False)
        publisher = await client.publisher("t", exactly_once=False)
        subscriber = await client.subscriber("t", exactly_once=False, timeout=None)
        assert publisher.guarantee is subscriber.guarantee is Guarantee.BROKER_AT_LEAST_ONCE
        sending = await publisher.submit(b"x")
        await (await subscriber.receive(LONG)).accept()
        assert (await sending).is_accepted


async def test_a_link_says_what_it_guarantees(server: WireServer) -> None:
    async with connect(server.url) as client:
        for exactly_once, guarantee in ((True, Guarantee.EXACTLY_ONCE), (False, Guarantee.AT_LEAST_ONCE)):
            publisher = await client.publisher("t", exactly_once=exactly_once)
            subscriber = await client.subscriber("t", exactly_once=exactly_once)
            assert publisher.guarantee is subscriber.guarantee is guarantee
        settled = await client.settled_publisher("t")
        assert settled.guarantee is (await client.subscriber("t", settled=True)).guarantee is Guarantee.AT_MOST_ONCE


async def test_an_expired_session_makes_its_messages_unknown_and_the_publisher_goes_on(
    server: WireServer, network: Network
) -> None:
    events: list[ClientEvent] = []
    async with connect(server.url, on_event=events.append) as client:
        publisher = await client.publisher("t")
        subscriber = await client.subscriber("t", timeout=60)
        lost = await publisher.submit(b"lost")
        await subscriber.receive(LONG)
        network.topic("t").expire_session()
        server.drop_connections()
        assert (await lost).kind is OutcomeKind.UNKNOWN
        sending = await publisher.submit(b"next")
        while (delivery := await subscriber.receive(LONG)).body != b"next":
            await delivery.accept()
        await delivery.accept()
        assert (await sending).is_accepted
        assert [event.messages for event in events if isinstance(event, SessionExpired)] == [1]


async def test_an_expired_session_can_be_repeated_in_doubt(server: WireServer, network: Network) -> None:
    async with connect(server.url) as client:
        publisher = await client.publisher("t", resend_in_doubt=True)
        subscriber = await client.subscriber("t")
        sending = await publisher.submit(b"x")
        first = await subscriber.receive(LONG)
        assert not first.is_in_doubt
        network.topic("t").expire_session()
        server.drop_connections()
        second = await subscriber.receive(LONG)
        assert second.is_in_doubt
        await first.accept()
        await second.accept()
        outcome = await sending
        assert outcome.is_accepted
        assert outcome.in_doubt


async def test_a_new_incarnation_is_reported_and_marks_the_deliveries(server: WireServer, network: Network) -> None:
    events: list[ClientEvent] = []
    async with connect(server.url, on_event=events.append) as client:
        publisher = await client.publisher("t")
        subscriber = await client.subscriber("t")
        _ = await publisher.submit(b"1")
        before = await subscriber.receive(LONG)
        await before.accept()
        await publisher.flush(LONG)
        (attachment,) = [a for a in server.attachments if a.identity.endswith(subscriber.name)]
        network.topic("t").unsubscribe(attachment.identity)
        attachment.link.detach(True, error("amqp:resource-deleted", x_opt_topic_resume="expired"))
        server.gone(attachment)
        server.pump_all()
        await until(lambda: any(isinstance(event, NewIncarnation) for event in events))
        assert any(isinstance(event, SubscriptionExpired) for event in events)
        _ = await publisher.submit(b"2")
        after = await subscriber.receive(LONG)
        assert after.incarnation > before.incarnation
        await after.accept()


async def test_a_message_larger_than_the_router_takes_is_refused_before_it_is_taken(server: WireServer) -> None:
    server.max_message_size = 1000
    async with connect(server.url) as client:
        publisher = await client.publisher("t")
        with pytest.raises(MessageTooLarge, match="1000 bytes at most"):
            _ = await publisher.submit(bytes(2000))
        await publisher.send(bytes(500))
