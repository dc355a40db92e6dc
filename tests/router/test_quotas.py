"""Quotas of users: what is beyond them is refused when a client opens, begins a session or attaches."""

from __future__ import annotations

import asyncio
import json
import pstats
import re
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from delivery_records.model.limits import KIB, MIB
from oncewire.cli.errors import CliError
from oncewire.client import connect
from oncewire.settings.parsers import NotAllowed
from oncewire.wire import ConnectionClosed, ConnectionOpened, SaslClient, SessionBegun, SessionEnded, Source, Target
from oncewire.wire.vocabulary import ANONYMOUS
from router.operator.access import Access
from router.process.logs import EventLog
from router.settings.config import RouterConfig
from router.settings.config_loading import format_config, load
from router.settings.groups import fits, groups, groups_of
from router.settings.quotas import NO_QUOTA, QuotaRule, quota_of, quota_rules
from tests.router.management_calls import call, entity, login
from tests.router.processes import RouterProcess, router_command, running_router
from tests.router.raw_client import RawClient, until
from tests.support.commands import run
from topology.inspector.schema.model import Role

LIMIT = "amqp:resource-limit-exceeded"
SILENT = "--listen-idle-timeout-s=300"
"""Raw clients send no heartbeats."""
PAGE = Path(__file__).parents[2] / "docs/rights.md"


def flags(users: Sequence[str], **rules: dict[str, object]) -> list[str]:
    """Users whose passwords are their names, and a quota for each of some."""
    tables = [{"users": [user], **quotas} for user, quotas in rules.items()]
    listed = ",".join(f"{user}:{user}" for user in users)
    return ["--standalone", SILENT, f"--users={listed}", f"--quota-rules={json.dumps(tables)}"]


async def raw(router: RouterProcess, user: str, **options: Any) -> RawClient:
    return await RawClient.connect(router.port, sasl=SaslClient("PLAIN", user, user), **options)


async def refused_open(router: RouterProcess, user: str, **options: Any) -> ConnectionClosed:
    client = await RawClient.dial(router.port, sasl=SaslClient("PLAIN", user, user), **options)
    return await client.wait_for(ConnectionClosed)


async def refused_attach(client: RawClient, *, subscribes: bool = False, **options: Any) -> str:
    """Attach what is refused; the error's text."""
    attach = client.session.attach_receiver if subscribes else client.session.attach_sender
    name = f"refused-{len(client.session.links)}"
    link = attach(name, source=Source(address="t"), target=Target(address="t"), **options)
    client.flush()
    error = (await client.detached(link)).error
    assert error is not None
    assert error.condition == LIMIT
    return error.description or ""


# --- rules ------------------------------------------------------------------------------------------------------------


def test_the_first_rule_that_fits_a_user_counts() -> None:
    of_all = [{"users": ["@all"], "keys": 7}, {"users": ["*"], "keys": 5}]
    rules = quota_rules([{"users": ["ann", "b*"], "links": 3}, *of_all])
    assert quota_of(rules, "bob") == QuotaRule(("ann", "b*"), links=3)
    assert quota_of(rules, "eve", frozenset({"all"})).keys == 7
    assert quota_of(rules, "").keys == 5
    assert quota_of(rules[:1], "eve") is NO_QUOTA


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ([{"users": ["ann"]}], "a rule has users and one at least of connections"),
        ([{"links": 3}], "users is a list of texts, with one at least"),
        ([{"users": ["ann"], "links": 0}], "links: it must be 1 to 1000000"),
        ([{"users": ["ann"], "links": "many"}], "links: it is a number"),
        ([{"users": ["ann"], "link": 3}], "a table has attach_rate, bytes"),
    ],
)
def test_a_quota_that_cannot_be_used_is_refused(value: object, why: str) -> None:
    with pytest.raises(NotAllowed, match=re.escape(why)):
        quota_rules(value)


def test_the_quotas_and_groups_of_the_page_mean_what_it_says_and_are_printed_as_a_file(tmp_path: Path) -> None:
    blocks = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    file = tmp_path / "router.toml"
    file.write_text("".join(each for each in blocks if "[groups]" in each or "quota.rules" in each))
    loaded = load(str(file), {}, {})
    rules = loaded.config.quota_rules
    assert quota_of(rules, "shop-7", frozenset({"shops"})).bytes == 64 * MIB
    assert quota_of(rules, "").connections == 20
    file.write_text(format_config(loaded))
    assert load(str(file), {}, {}).config == loaded.config


# --- at routers -------------------------------------------------------------------------------------------------------


async def test_connections_frames_and_sessions_beyond_a_quota_are_refused_at_open_and_begin() -> None:
    rules = flags(["two", "wide", "eve"], two={"connections": 2, "sessions": 2}, wide={"min_frame_size": 4096})
    async with running_router(*rules) as router:
        first, _second = await raw(router, "two"), await raw(router, "two")
        error = (await refused_open(router, "two")).error
        assert error is not None
        assert error.condition == LIMIT
        assert error.description == "connections of this user at this router are limited to 2"
        for _ in range(3):
            await raw(router, "eve")

        allowed = first.engine.begin()
        beyond = first.engine.begin()
        first.flush()
        await first.wait_for(SessionBegun, lambda event: event.session is allowed)
        ended = await first.wait_for(SessionEnded, lambda event: event.session is beyond)
        assert ended.error is not None
        assert ended.error.condition == LIMIT

        first.cut()
        await until(lambda: is_admitted(router, "two"), bool)

        small = await refused_open(router, "wide", max_frame_size=2048)
        assert small.error is not None
        assert small.error.description == "open with a max-frame-size of 4096 or more"
        await raw(router, "wide", max_frame_size=4096)
        log = await router.stop()
    assert "quota.rules: connections = 2 for two" in log


async def is_admitted(router: RouterProcess, user: str) -> bool:
    client = await RawClient.dial(router.port, sasl=SaslClient("PLAIN", user, user))
    await client.wait_for(ConnectionOpened)
    client.engine.begin()
    client.flush()
    while not (found := [event for event in client.heard if isinstance(event, SessionBegun | ConnectionClosed)]):
        await client.news()
    client.cut()
    return isinstance(found[0], SessionBegun)


async def test_links_keys_maps_and_sizes_beyond_a_quota_are_refused_at_attach() -> None:
    rules = flags(
        ["link", "key", "map", "size"],
        link={"links": 2},
        key={"keys": 2},
        map={"map_entries": 1, "min_map": 50},
        size={"message_size": 1024},
    )
    async with running_router(*rules) as router:
        one, two = await raw(router, "link"), await raw(router, "link")
        await one.publisher("t")
        publisher = await two.publisher("t")
        assert await refused_attach(one) == "links of this user at this router are limited to 2"
        publisher.link.detach(True)
        two.flush()
        await two.detached(publisher.link)
        await one.publisher("t", "again")

        one = await raw(router, "key", container_id="app")
        for _ in range(3):  # what the router refuses for another reason counts no longer
            link = one.session.attach_sender("wrong", source=Source(address="t"), target=Target(address="a.#"))
            one.flush()
            await one.detached(link)
        await one.subscriber("t")
        await one.publisher("t")
        text = await refused_attach(one)
        assert text == "subscriptions and publishers of this user are limited to 2: end one, or wait until one expires"
        one.cut()
        again = await raw(router, "key", container_id="app")
        await again.publisher("t")
        again.cut()
        again = await raw(router, "key", container_id="app")
        await again.subscriber("t")  # it has a key

        one = await raw(router, "map")
        assert "are limited to 1, and this one has 2" in await refused_attach(one, unsettled={b"1": None, b"2": None})
        narrow = await raw(router, "map", max_frame_size=1024)
        text = await refused_attach(narrow, subscribes=True, unsettled={})
        assert text == "frames must hold an unsettled map of 50 entries: raise max-frame-size"
        await narrow.publisher("t")

        one = await raw(router, "size")
        assert (await one.publisher("t")).reply.max_message_size == 1024
        log = await router.stop()
    assert "quota.rules: links = 2 for link" in log


async def test_a_subscriber_may_present_what_it_was_sent_under_its_quota() -> None:
    """A full map takes one delivery of each publisher that has none in it (C-4)."""
    async with running_router(*flags(["map"], map={"map_entries": 2})) as router:
        reader = await raw(router, "map", container_id="reader")
        subscriber = await reader.subscriber("t", timeout=3600)
        tags = []
        for number in range(4):
            (await (await raw(router, "map", container_id=f"p{number}")).publisher("t")).send(b"1", b"body")
            tags.append((await subscriber.delivery()).tag)
        reader.cut()
        await reader.closed()
        reader = await raw(router, "map", container_id="reader")
        subscriber = await reader.subscriber("t", timeout=3600, unsettled=dict.fromkeys(tags))
        assert subscriber.reply.unsettled == dict.fromkeys(tags)
        reader = await raw(router, "map", container_id="reader")
        many = {b"%d" % number: None for number in range(7)}
        assert "are limited to 2, and this one has 7" in await refused_attach(reader, subscribes=True, unsettled=many)


async def test_a_user_is_granted_the_time_and_the_window_of_the_quota_and_is_reported_both() -> None:
    async with running_router(*flags(["ann"], ann={"timeout_s": 20, "unsettled": 5})) as router:
        client = await raw(router, "ann")
        subscriber = await client.subscriber("t", timeout=3600)
        publisher = await client.publisher("t")
        source, target = subscriber.reply.source, publisher.reply.target
        assert isinstance(source, Source)
        assert isinstance(target, Target)
        assert (source.timeout, target.timeout) == (20, 20)
        assert publisher.link.credit == 5


async def test_bodies_of_all_sessions_of_a_user_stay_within_the_quota() -> None:
    quota = 128 * KIB
    async with running_router(*flags(["ann", "bob"], ann={"bytes": quota}), "--limits-max-frame-size=4k") as router:
        subscriber = await (await raw(router, "bob")).subscriber("t")
        clients = [await raw(router, "ann") for _ in range(3)]
        publishers = [await client.publisher("t") for client in clients]
        sent = [publisher.send(b"%d" % n, bytes(8 * KIB)) for n in range(20) for publisher in publishers]
        assert len(sent) == 60
        for client in clients:
            client.flush()
        held = await until(lambda: held_bytes(router), lambda found: found >= quota - 16 * KIB)
        assert held <= quota + len(clients) * 8 * KIB + 4 * KIB, "a message for each session may be beyond it"

        async def accept_and_settle() -> int:
            for delivery in subscriber.take_deliveries():
                subscriber.accept(delivery)
                accepted.append(delivery)
            for publisher in publishers:
                publisher.settle_accepted()
            return len(accepted)

        accepted: list[object] = []
        await until(accept_and_settle, lambda count: count == len(sent))  # where some are settled, the rest comes


async def held_bytes(router: RouterProcess) -> int:
    _, found = await call(router.http, "GET", "/api/v1/management/publisher")
    return sum(row["bytes"] or 0 for row in found["items"])


async def test_new_values_hold_for_what_is_new_and_what_is_beyond_them_stays(tmp_path: Path) -> None:
    config = tmp_path / "router.toml"
    text = 'standalone = true\nusers = {ann = "a"}\n[[quota.rules]]\nusers = ["ann"]\nlinks = 2\n'
    config.write_text(text)
    async with running_router(f"--config={config}") as router, connect(f"amqp://ann:a@127.0.0.1:{router.port}") as ann:
        subscriber, publisher = await ann.subscriber("t"), await ann.publisher("t")
        config.write_text(text.replace("links = 2", "links = 1"))
        router.process.send_signal(signal.SIGHUP)
        await until(lambda: links_in_force(router), lambda links: links == 1)
        sending = await publisher.submit(b"1")
        await (await subscriber.receive()).accept()
        assert (await sending).is_accepted
        other = await RawClient.connect(router.port, sasl=SaslClient("PLAIN", "ann", "a"))
        assert await refused_attach(other) == "links of this user at this router are limited to 1"


async def links_in_force(router: RouterProcess) -> int:
    _, row = await call(router.http, "GET", entity("config", "router"))
    return int(row["quota.rules"][0]["links"])


async def test_who_has_not_logged_in_has_a_quota_by_address_and_leaves_nothing_behind() -> None:
    rules = json.dumps([{"users": [ANONYMOUS], "connections": 1}])
    async with running_router("--standalone", SILENT, f"--quota-rules={rules}") as router:
        first = await RawClient.connect(router.port)
        second = await RawClient.dial(router.port)
        await second.wait_for(ConnectionClosed)
        first.cut()
        log = await router.stop()
    assert f"quota.rules: connections = 1 for {ANONYMOUS} at 127.0.0.1" in log


async def test_a_message_asks_no_rule(tmp_path: Path) -> None:
    """How often the router has called what reads rules, as its profile counts."""
    profile, messages = tmp_path / "profile", 300
    rules = flags(["ann"], ann={"links": 9, "keys": 9, "bytes": MIB, "unsettled": 50, "message_size": MIB})
    command = router_command("--listen-port=0", "--http-port=0", "--announce", "--log-level=error", *rules)
    at = command.index("-m")
    process = await asyncio.create_subprocess_exec(
        *command[:at],
        "-m",
        "cProfile",
        "-o",
        str(profile),
        *command[at:],
        '--access-rules=[{"users": ["*"], "publish": ["#"], "subscribe": ["#"]}]',
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    url = json.loads(await process.stdout.readline())["url"]
    async with connect(url.replace("//", "//ann:ann@")) as ann:
        subscriber, publisher = await ann.subscriber("t"), await ann.publisher("t")
        for _ in range(messages):
            sending = await publisher.submit(b"1")
            await (await subscriber.receive()).accept()
            assert (await sending).is_accepted
    process.terminate()
    await process.wait()
    counts: dict[tuple[str, int], int] = {}
    for (file, line, function), (calls, *_) in pstats.Stats(str(profile)).stats.items():  # type: ignore[attr-defined]
        if Path(file).name in {"quotas.py", "groups.py", "access_rules.py", "link_policy.py"}:
            counts[function, line] = calls
    assert sum(calls for (function, _), calls in counts.items() if function == "quota_of") >= 3, "open and two attaches"
    assert max(counts.values()) < messages / 4, counts


# --- groups -----------------------------------------------------------------------------------------------------------

GROUPS = (("shops", ("ann", "shop-*")), ("strangers", (ANONYMOUS,)))


def test_a_group_stands_for_its_users_and_no_user_is_one_by_name() -> None:
    assert groups_of(GROUPS, "shop-7") == {"shops"}
    assert groups_of(GROUPS, "") == {"strangers"}
    assert fits(("eve", "@shops"), "ann", groups_of(GROUPS, "ann"))
    assert not fits(("@shops",), "@shops", groups_of(GROUPS, "@shops"))
    access = Access(RouterConfig(users=(("ann", "a"),), groups=GROUPS, roles=(("@shops", "operator"),)), EventLog("r"))
    roles = [access.role_of_user(user) for user in ("ann", "@shops", "eve")]
    assert roles == [Role.OPERATOR, Role.VIEWER, Role.VIEWER]


@pytest.mark.parametrize(
    "value", ["[", [], {"a b": ["ann"]}, {"a": "ann"}, {"a": ["@b"]}, {f"g{n}": ["ann"] for n in range(1001)}]
)
def test_groups_that_cannot_be_used_are_refused(value: object) -> None:
    with pytest.raises(NotAllowed):
        groups(value)


@pytest.mark.parametrize(
    "named",
    [
        {"access_rules": '[{"users": ["@no"], "publish": ["#"]}]'},
        {"quota_rules": '[{"users": ["@no"], "links": 1}]'},
        {"slow_rules": '[{"users": ["@no"], "action": "wait"}]'},
        {"adopts_links": "@no"},
        {"roles": "@no=viewer", "users": "ann:a"},
    ],
)
def test_a_group_that_there_is_not_is_an_error(named: dict[str, object]) -> None:
    with pytest.raises(CliError) as refused:
        load(None, named, {})
    assert "there is no group no" in refused.value.why


# --- management -------------------------------------------------------------------------------------------------------

POLICY = (
    "--standalone",
    SILENT,
    "--id=r1",
    "--users=ann:a,olga:o",
    "--roles=olga=operator",
    '--groups={"shops": ["ann"]}',
    '--access-rules=[{"users": ["@shops"], "publish": ["orders.#", "queue://jobs"], "replay": ["queue://jobs"]}]',
    '--quota-rules=[{"users": ["@shops"], "links": 3}]',
)


async def test_management_shows_which_rule_decides_for_a_user() -> None:
    async with running_router(*POLICY) as router:
        client = await RawClient.connect(router.port, sasl=SaslClient("PLAIN", "ann", "a"))
        await client.publisher("orders.eu")
        asked = {"user": "ann", "publish": "orders.eu", "subscribe": "orders.eu", "view": "queue://jobs"}
        explain = entity("router", "r1", "explain")
        status, row = await call(router.http, "POST", explain, {**asked, "replay": "queue://jobs"}, login("olga", "o"))
        assert status == 200
        assert row == {
            "user": "ann",
            "groups": ["shops"],
            "role": "viewer",
            "publish": "allowed by rule 1 of access.rules: users @shops, publish orders.#, queue://jobs",
            "subscribe": "refused: no rule of access.rules allows it",
            "view": "refused: no rule of access.rules has view, so it needs the role admin",
            "replay": "allowed by rule 1 of access.rules: users @shops, replay queue://jobs",
            "quota": {"rule": 1, "users": ["@shops"], "links": 3},
            "slow": "none: publishers wait",
            "adopts_links": False,
            "policy": "on_empty=release/accept on_reject=accept max_attempts=10 retry=1-60s,"
            " by no rule of topics.rules",
            "use": {"connections": 1, "links": 1, "keys": 1, "bytes": 0},
        }
        _, row = await call(router.http, "POST", explain, {"publish": "orders.eu"})
        assert (row["user"], row["quota"]) == (ANONYMOUS, "none")
        assert row["publish"] == "refused: no rule of access.rules allows it"


async def test_rules_are_set_over_management_by_admins_and_hold_at_once() -> None:
    async with running_router(*POLICY) as router:
        client = await RawClient.connect(router.port, sasl=SaslClient("PLAIN", "ann", "a"))
        publisher = await client.publisher("orders.eu")
        config = entity("config", "router")
        rules = [{"users": ["olga"], "publish": ["#"]}]
        status, _ = await call(router.http, "PUT", config, {"access.rules": rules}, login("olga", "o"))
        assert status == 403
        unusable: list[dict[str, object]] = [
            {"access.rules": [{"users": []}]},
            {"groups": {"a": 1}},
            {"quota.rules": "x"},
            {"id": "r2"},
        ]
        for wrong in unusable:
            status, answer = await call(router.http, "PUT", config, wrong)
            assert status == 400, answer
        status, answer = await call(router.http, "PUT", config, {"groups": {}})
        assert (status, "there is no group shops" in answer["error"]) == (409, True)
        status, row = await call(router.http, "PUT", config, {"access.rules": rules, "quota.rules": []})
        assert (status, row["access.rules"][0]["users"], row["quota.rules"]) == (200, ["olga"], [])
        assert (await client.detached(publisher.link)).error is not None
        command = ["manage", "set", "config", "router", "--url", router.http]
        done, _, _ = await run(*command, 'quota.rules=[{"users": ["ann"], "keys": 9}]')
        assert done == 0
        _, row = await call(router.http, "GET", config)
        assert row["quota.rules"] == [{"users": ["ann"], "keys": 9}]
        log = await router.stop()
    assert '"event": "management_done"' in log
    assert '"event": "management_refused"' in log
