"""The node `$management` at real routers: requests and answers as the AMQP Management draft has them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oncewire.wire import (
    Accepted,
    AmqpSession,
    Described,
    LinkAttached,
    LinkState,
    ReceiverLink,
    Rejected,
    SenderLink,
    SessionBegun,
    Source,
    Symbol,
    Target,
    ULong,
)
from router.commands.local_network import LocalNetwork
from router.operator.amqp_node import CREDIT, MAX_ANSWERS, MAX_LINKS
from router.operator.schema import TYPES
from router.operator.service import MAX_ROWS
from tests.router.management_calls import PREFIX, call, entity
from tests.router.management_client import NODE, ManagementClient
from tests.router.processes import RouterProcess, running_router
from tests.router.raw_client import RawClient


async def test_the_node_notifies_what_there_is(alpha: RouterProcess) -> None:
    client = await ManagementClient.connect(alpha.port)
    types = await client.ask("GET-TYPES", type="org.amqp.management", name="self")
    assert (types.status, types.correlation) == (200, "request-1")
    assert types.body == {f"oncewire.{name}": [] for name, each in TYPES.items() if not each.is_stored}
    attributes = (await client.ask("GET-ATTRIBUTES", entityType="oncewire.topic")).body
    assert attributes["oncewire.topic"][:3] == ["name", "identity", "type"]
    assert "waiting" in attributes["oncewire.topic"]
    operations = (await client.ask("GET-OPERATIONS")).body
    assert operations["oncewire.subscription"] == ["READ", "DELETE", "expire"]
    assert operations["oncewire.link"] == ["READ", "UPDATE"]
    assert (await client.ask("GET-ANNOTATIONS", entityType="link")).body == {"oncewire.link": []}
    assert (await client.ask("GET-MGMT-NODES")).body == []


async def test_entities_are_queried_in_parts_and_by_attributes(alpha: RouterProcess) -> None:
    other = await RawClient.connect(alpha.port, "till")
    for number in range(5):
        await other.publisher(f"topic-{number}", f"pub-{number}")
    client = await ManagementClient.connect(alpha.port)
    found = await client.ask("QUERY", {"attributeNames": ["name", "publishers"]}, entityType="topic", offset=1, count=3)
    assert found.body == {
        "attributeNames": ["name", "publishers"],
        "results": [["topic-1", 1], ["topic-2", 1], ["topic-3", 1]],
    }
    everything = await client.ask("QUERY")
    names = everything.body["attributeNames"]
    rows = [dict(zip(names, row, strict=True)) for row in everything.body["results"]]
    assert {row["type"] for row in rows} >= {f"oncewire.{name}" for name in ("router", "log", "config", "connection")}
    paged = []
    for offset in range(0, len(rows), 2):
        paged += (await client.ask("QUERY", {"attributeNames": ["identity"]}, offset=offset, count=2)).body["results"]
    assert [row["identity"] for row in rows] == [row[0] for row in paged]
    for row in rows:  # what is found can be read by its name
        if row["type"] != "oncewire.connection":
            assert (await client.ask("READ", type=row["type"], name=row["name"])).body["identity"] == row["identity"]


async def test_a_count_beyond_what_is_answered_at_once_leaves_nothing_out() -> None:
    async with running_router("--standalone", "--log-level=warning") as router:
        other = await RawClient.connect(router.port, "till")
        links = [
            other.session.attach_sender(f"pub-{number}", source=Source(), target=Target(address="orders"))
            for number in range(MAX_ROWS + 3)
        ]
        other.flush()
        for link in links:
            await other.attached(link)
        client = await ManagementClient.connect(router.port)
        paged: list[str] = []
        body = {"attributeNames": ["identity"]}
        while part := (await client.ask("QUERY", body, offset=len(paged), count=10 * MAX_ROWS)).body["results"]:
            assert len(part) <= MAX_ROWS
            paged += [row[0] for row in part]
        publishers = {row["key"] for row in await publishers_of(router)}
        assert len(publishers) == MAX_ROWS + 3
        assert publishers <= set(paged)
        assert len(paged) == len(set(paged)) + 1  # log and config are both called router


async def publishers_of(router: RouterProcess) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for offset in (0, MAX_ROWS):
        status, reported = await call(router.http, "GET", f"{PREFIX}/publisher?offset={offset}")
        assert status == 200
        found += reported["items"]
    return found


async def test_an_entity_is_read_updated_and_deleted(alpha: RouterProcess) -> None:
    other = await RawClient.connect(alpha.port, "box")
    subscriber = await other.subscriber("orders")
    client = await ManagementClient.connect(alpha.port)
    log = (await client.ask("READ", type="oncewire.log", name="router")).body
    assert (log["type"], log["identity"], log["level"]) == ("oncewire.log", "router", "info")
    log["level"] = "debug"
    changed = await client.ask("UPDATE", log, type="oncewire.log", name="router")
    assert (changed.status, changed.body["level"]) == (200, "debug")
    row = (await client.ask("READ", type="subscription", name="box/sub")).body
    assert (await client.ask("DELETE", type="subscription", identity=row["identity"])).status == 400
    refused = await client.ask("DELETE", type="subscription", identity=row["identity"], epoch=row["epoch"] - 1)
    assert refused.status == 409
    assert "has changed since epoch" in refused.description
    gone = await client.ask("DELETE", type="subscription", identity=row["identity"], epoch=row["epoch"])
    assert (gone.status, gone.body) == (204, {})
    assert (await other.detached(subscriber.link)).error is not None
    traced = await client.ask("trace", {"on": True, "topics": ["orders"]}, type="router", name="alpha")
    assert (traced.status, traced.body["topics"]) == (200, ["orders"])


BAD_REQUESTS: list[tuple[int, str, object, dict[str, Any]]] = [
    (400, "the request has no application property operation", {}, {}),
    (400, "the request has no application property type", {}, {"operation": "READ"}),
    (404, "there is no type exchange", {}, {"operation": "READ", "type": "exchange"}),
    (404, "there is no type exchange", {}, {"operation": "QUERY", "entityType": "exchange"}),
    (400, "the request has no application property name or identity", {}, {"operation": "READ", "type": "topic"}),
    (404, "there is no topic x here", {}, {"operation": "READ", "type": "topic", "name": "x"}),
    (404, "a topic has no operation EXPLODE", {}, {"operation": "EXPLODE", "type": "topic", "name": "x"}),
    (501, "nothing is created here", {}, {"operation": "CREATE", "type": "topic", "name": "x"}),
    (400, "count = -1 cannot be used", {}, {"operation": "QUERY", "count": -1}),
    (400, "attributeNames is no list of texts", {"attributeNames": "name"}, {"operation": "QUERY"}),
    (400, "the body of the request is no map", ["x"], {"operation": "QUERY"}),
    (405, "nothing of a topic can be set", {"a": 1}, {"operation": "UPDATE", "type": "topic", "name": "orders"}),
    (400, "level = 'loud' cannot be used", {"level": "loud"}, {"operation": "UPDATE", "type": "log", "name": "router"}),
]


async def test_bad_requests_are_answered_with_what_is_wrong(alpha: RouterProcess) -> None:
    other = await RawClient.connect(alpha.port, "till")
    await other.publisher("orders")
    client = await ManagementClient.connect(alpha.port)
    for status, description, body, properties in BAD_REQUESTS:
        client.send("m", body, **properties)
        answer = await client.answer()
        assert (answer.status, answer.correlation) == (status, "m"), properties
        assert answer.description.startswith(description), properties


async def test_the_answer_has_the_requests_correlation_id_if_it_has_one(alpha: RouterProcess) -> None:
    client = await ManagementClient.connect(alpha.port)
    for message_id, correlation, wanted in (("m", "c", "c"), (None, 7, 7), ("m", None, "m"), (None, None, None)):
        client.send(message_id, operation="GET-MGMT-NODES", correlation_id=correlation)
        assert (await client.answer()).correlation == wanted


async def test_a_receiver_with_an_address_of_its_own_gets_the_answers(alpha: RouterProcess) -> None:
    client = await ManagementClient.connect(alpha.port, own_address="my-console")
    assert client.reply_to == "my-console"
    assert (await client.ask("GET-MGMT-NODES")).status == 200


async def test_a_request_that_cannot_be_answered_is_rejected(alpha: RouterProcess) -> None:
    client = await ManagementClient.connect(alpha.port)
    for delivery_id, condition in (
        (client.send("m", operation="GET-TYPES", reply_to="nobody"), "amqp:precondition-failed"),
        (client.send("m", operation="GET-TYPES", reply_to=None), "amqp:precondition-failed"),
        (client.send_bytes(b"\x00\x53"), "amqp:decode-error"),
        (client.send_bytes(b"\xff" * 40), "amqp:decode-error"),
    ):
        said = await client.disposition(delivery_id)
        assert isinstance(said.state, Rejected)
        assert said.state.error is not None
        assert said.state.error.condition == condition
    said = await client.disposition(client.send("m", operation="GET-TYPES"))
    assert isinstance(said.state, Accepted)
    assert said.settled


async def test_the_role_of_the_sasl_user_applies() -> None:
    flags = (
        "--standalone",
        "--id=alpha",
        "--users=ann:a,olga:o,vera:v",
        "--roles=ann=admin,olga=operator,vera=viewer",
        "--http-loopback-role=none",
        "--http-anonymous-role=none",
    )
    async with running_router(*flags) as router:
        box = await RawClient.connect(router.port, "box")
        await box.subscriber("orders")
        may = (("vera", "v", 403, 403), ("olga", "o", 200, 403), ("ann", "a", 200, 409))
        for user, password, may_set, may_delete in may:
            client = await ManagementClient.connect(router.port, user, password)
            assert (await client.ask("READ", type="log", name="router")).status == 200
            reported = await client.ask("UPDATE", {"level": "info"}, type="log", name="router")
            assert reported.status == may_set
            assert (await client.ask("DELETE", type="subscription", name="box/sub", epoch=1)).status == may_delete
        stranger = await RawClient.connect(router.port)  # it may publish and subscribe, and manage nothing
        link = stranger.session.attach_sender("requests", source=Source(), target=Target(address=NODE))
        stranger.flush()
        refused = await stranger.detached(link)
        assert refused.error is not None
        assert refused.error.condition == "amqp:unauthorized-access"


async def test_a_role_that_is_taken_away_ends_what_open_links_may_read(tmp_path: Path) -> None:
    settings = 'standalone = true\nid = "alpha"\n[http]\nanonymous_role = "none"\n'
    file = tmp_path / "router.toml"
    file.write_text('users = { ann = "a", vera = "v" }\nroles = { vera = "viewer" }\n' + settings)
    async with running_router(f"--config={file}") as router:
        client = await ManagementClient.connect(router.port, "vera", "v")
        assert (await client.ask("READ", type="config")).status == 200
        file.write_text('users = { ann = "a", vera = "v" }\n' + settings)
        assert (await call(router.http, "POST", entity("router", "alpha", "reload"), {}))[0] == 200
        for operation, properties in (("READ", {"type": "config"}), ("QUERY", {}), ("GET-MGMT-NODES", {})):
            refused = await client.ask(operation, **properties)
            assert (refused.status, refused.body) == (403, {}), operation
            assert refused.description.startswith("this needs the role viewer")


async def test_links_requests_and_unread_answers_are_bounded(alpha: RouterProcess) -> None:
    client = await RawClient.connect(alpha.port)
    sender = client.session.attach_sender("requests", source=Source(), target=Target(address=NODE))
    links = [
        client.session.attach_receiver(f"answers-{number}", source=Source(dynamic=True), target=Target())
        for number in range(MAX_LINKS)
    ]
    client.flush()
    refused = await client.detached(links[-1])
    assert refused.error is not None
    assert refused.error.condition == "amqp:resource-limit-exceeded"
    addresses = {
        str(link.remote_attach.source.address)
        for link in links[:-1]
        if link.remote_attach is not None and link.remote_attach.source is not None
    }
    assert len(addresses) == MAX_LINKS - 1
    links[0].detach(True)
    client.flush()
    await client.detached(links[0])
    again = client.session.attach_receiver("again", source=Source(dynamic=True), target=Target())
    client.flush()
    await client.wait_for(LinkAttached, lambda event: event.link is again)
    assert again.remote_attach is not None
    assert again.remote_attach.source is not None
    asking = ManagementClient(client, sender, links[1], str(links[1].remote_attach.source.address))  # type: ignore[union-attr]
    for number in range(MAX_ANSWERS + 8):
        said = await asking.disposition(asking.send(f"m{number}", operation="GET-MGMT-NODES"))
        assert isinstance(said.state, Accepted)
    assert sender.credit == CREDIT
    links[1].grant(MAX_ANSWERS + 8)
    client.flush()
    last = f"m{MAX_ANSWERS + 7}"
    heard: list[object] = []
    while not heard or heard[-1] != last:
        heard.append((await asking.answer()).correlation)
    assert len(heard) <= MAX_ANSWERS


async def test_an_answer_that_is_too_large_for_the_client_says_so(alpha: RouterProcess) -> None:
    client = await RawClient.connect(alpha.port)
    receiver = client.session.attach_receiver(  # before the sender, but in the same read
        "answers", source=Source(dynamic=True), target=Target(), max_message_size=600
    )
    sender = client.session.attach_sender("requests", source=Source(), target=Target(address=NODE))
    client.flush()
    reply = await client.attached(receiver)
    await client.attached(sender)
    receiver.grant(10)
    assert isinstance(reply.source, Source)
    asking = ManagementClient(client, sender, receiver, str(reply.source.address))
    reported = await asking.ask("QUERY")
    assert (reported.status, reported.correlation) == (413, "request-1")
    assert (await asking.ask("GET-MGMT-NODES")).status == 200


@pytest.mark.parametrize(
    "source",
    [
        Source(dynamic=True),
        Source(
            dynamic=True,
            dynamic_node_properties={Symbol("lifetime-policy"): Described(ULong(0x2B), [])},
            capabilities=(Symbol("temporary-topic"),),
        ),
        Source(address="orders", dynamic=True),
    ],
    ids=["plain", "JMS temporary topic", "with address"],
)
async def test_a_dynamic_source_without_a_sender_to_management_is_an_address_of_the_network(
    alpha: RouterProcess, source: Source
) -> None:
    client = await RawClient.connect(alpha.port)
    link = client.session.attach_receiver("temporary", source=source, target=Target())
    client.flush()
    made = (await client.attached(link)).source
    assert made is not None
    assert (made.address or "").startswith("_reply/")
    subscriber = await client.subscriber("orders")
    assert subscriber.link.is_attached, "the session goes on"


@pytest.mark.parametrize("closed", [True, False])
async def test_a_management_link_that_is_detached_in_the_read_it_came_with_is_answered(
    alpha: RouterProcess, closed: bool
) -> None:
    """2.6.3, 2.6.5: an attach and a detach, and the connection goes on."""
    client = await RawClient.connect(alpha.port)
    session = client.session
    links: list[SenderLink | ReceiverLink] = [
        session.attach_receiver("dynamic", source=Source(dynamic=True), target=Target()),
        session.attach_sender("requests", source=Source(), target=Target(address=NODE)),
        session.attach_receiver("answers", source=Source(address=NODE), target=Target(address="mine")),
        session.attach_receiver("dynamic behind a sender", source=Source(dynamic=True), target=Target()),
    ]
    for link in links:
        link.detach(closed)
    client.flush()
    for link in links:
        answer = await client.detached(link)
        assert link.remote_attach is not None
        assert (answer.closed, answer.error, link.state) == (closed, None, LinkState.DETACHED)
    asking = await ManagementClient.connect(alpha.port)
    assert (await asking.ask("GET-MGMT-NODES")).status == 200
    assert (await client.subscriber("orders")).link.is_attached, "and so does the session"


async def test_other_dollar_addresses_are_refused_as_before(alpha: RouterProcess) -> None:
    client = await RawClient.connect(alpha.port)
    link = client.session.attach_sender("s", source=Source(), target=Target(address="$cbs"))
    client.flush()
    refused = await client.detached(link)
    assert refused.error is not None
    assert refused.error.condition == "amqp:not-found"


async def test_deliveries_go_on_beside_management(alpha: RouterProcess) -> None:
    """One connection publishes, subscribes and manages: the answers are in nobody's window."""
    client = await ManagementClient.connect(alpha.port)
    subscriber = await client.client.subscriber("orders")
    publisher = await client.client.publisher("orders")
    for number in range(20):
        publisher.send(b"%d" % number, b"body")
        assert (await client.ask("READ", type="connection", name=client.client.container_id)).body["links"] == 2
        subscriber.accept(await subscriber.delivery())
        await publisher.outcome(b"%d" % number)
    row = (await client.ask("QUERY", entityType="publisher")).body
    assert dict(zip(row["attributeNames"], row["results"][0], strict=True))["reported"] == 20


async def test_a_session_that_ends_takes_its_management_links_along(alpha: RouterProcess) -> None:
    client = await ManagementClient.connect(alpha.port)
    for _ in range(3):
        client.client.session.end()
        client.client.flush()
        client.client.session = session = client.client.engine.begin()
        client.client.flush()
        await client.client.wait_for(SessionBegun, _is_begun(session))
        client.client.session.attach_sender("requests", source=Source(), target=Target(address=NODE))
        receivers = [
            client.client.session.attach_receiver(f"a{number}", source=Source(dynamic=True), target=Target())
            for number in range(MAX_LINKS - 1)
        ]
        client.client.flush()
        for receiver in receivers:
            assert (await client.client.attached(receiver)).source is not None


def _is_begun(session: AmqpSession) -> Callable[[SessionBegun], bool]:
    return lambda event: event.session is session


async def test_the_node_of_a_router_names_those_of_the_others() -> None:
    async with LocalNetwork(2) as network:
        client = await ManagementClient.connect(network.routers["r1"].amqp_port)
        nodes = (await client.ask("GET-MGMT-NODES")).body
        assert nodes == [f"{network.routers['r2'].url}/{NODE}"]
        changed = await client.ask("UPDATE", {"cost": 9}, type="link", name="r2")
        assert (changed.status, changed.body["cost"]) == (200, 9)
