"""Policies of topics (I-3d): rules of the settings, and what they do at router processes, also after a reload."""

from __future__ import annotations

import json
import re
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from delivery_records.model.limits import OnEmpty, TopicPolicy
from delivery_records.model.topics import in_vhost
from oncewire.cli.errors import CliError
from oncewire.client import OutcomeKind, connect
from oncewire.settings.parsers import NotAllowed
from oncewire.wire import RELEASED, DispositionReceived, Rejected
from router.commands.local_network import LocalNetwork
from router.settings.config import RouterConfig
from router.settings.config_loading import format_config, load
from router.settings.topic_rules import TopicRule, described, topic_rule_number, topic_rules
from tests.router.management_calls import call, entity
from tests.router.processes import RouterProcess, running_router
from tests.router.raw_client import RawClient, until

PAGE = Path(__file__).resolve().parents[2] / "docs" / "topic-policies.md"
RULES = [{"topics": ["audit.#"], "on_empty": "reject"}, {"topics": ["#"], "max_attempts": 3}]


# --- rules ------------------------------------------------------------------------------------------------------------


def test_the_first_rule_that_fits_counts_and_what_it_does_not_name_is_as_the_limits_say() -> None:
    config = RouterConfig(topic_rules=topic_rules(RULES), on_reject="report", retry_cap_s=5.0)
    assert topic_rule_number(config.topic_rules, "audit.eu.new") == 1
    assert config.policy_of("audit.eu.new") == TopicPolicy(
        OnEmpty.REJECT, OnEmpty.REJECT, report_rejections=True, max_attempts=10, retry_cap_s=5.0
    )
    assert config.policy_of("orders") == TopicPolicy(
        OnEmpty.RELEASE, OnEmpty.ACCEPT, report_rejections=True, max_attempts=3, retry_cap_s=5.0
    )


def test_without_a_rule_only_stock_publishers_get_what_the_limits_say() -> None:
    policy = RouterConfig(on_empty="reject").policy_of("orders")
    assert (policy.on_empty, policy.on_empty_exactly_once) == (OnEmpty.REJECT, OnEmpty.ACCEPT)
    assert described(policy) == "on_empty=reject/accept on_reject=accept max_attempts=10 retry=1-60s"


def test_a_rule_holds_in_the_virtual_hosts_that_it_names() -> None:
    rules = (TopicRule(("orders",), ("crm*",), max_attempts=1), TopicRule(("orders",), ("$default",), max_attempts=2))
    assert topic_rule_number(rules, in_vhost("crm-eu", "orders")) == 1
    assert topic_rule_number(rules, "orders") == 2
    assert topic_rule_number(rules, in_vhost("erp", "orders")) is None


def test_a_dead_letter_topic_is_one_of_the_same_virtual_host_and_has_none_of_its_own() -> None:
    rules = topic_rules(
        [
            {
                "topics": ["orders.#"],
                "vhosts": ["crm", "$default"],
                "dead_letter": "dead.orders",
                "dead_letter_wait_s": 60,
            },
            {"topics": ["#"], "dead_letter": "dead"},
        ]
    )
    config = RouterConfig(topic_rules=rules)
    assert config.policy_of(in_vhost("crm", "orders.eu")).dead_letter == in_vhost("crm", "dead.orders")
    assert config.policy_of("orders.eu").dead_letter == "dead.orders"
    of_crm = described(config.policy_of(in_vhost("crm", "orders.eu")))
    assert of_crm.endswith(" dead_letter=dead.orders dead_letter_wait=60s")
    for topic, is_one in (("dead.orders", True), ("dead", True), (in_vhost("erp", "dead.orders"), False)):
        policy = config.policy_of(topic)
        assert (policy.is_dead_letter, policy.dead_letter == "") == (is_one, is_one)
    assert config.policy_of(in_vhost("$reply", "_reply/0123")).dead_letter == ""  # nobody could subscribe there
    assert RouterConfig(topic_rules=rules[:1]).policy_of("dead.orders").is_dead_letter


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ([{"topics": ["a"], "dead_letter": "dead.#"}], "dead_letter is a topic without wildcards"),
        ([{"topics": ["a"], "dead_letter": ""}], "dead_letter is a topic without wildcards"),
        ([{"topics": ["a"], "dead_letter": "a\x1fb"}], "dead_letter is a topic without wildcards"),
        ([{"topics": ["a"], "dead_letter": "b", "dead_letter_wait_s": -1}], "dead_letter_wait_s is 0 to 86400 seconds"),
        ([{"topics": ["a"], "dead_letter_wait_s": 9}], "a rule with dead_letter_wait_s has dead_letter"),
        ([{"topics": ["a"], "dead_letter": 3}], "dead_letter is a topic without wildcards"),
        ("[{", "in a text it is JSON"),
        ([{"topics": ["a"]}], "a rule has topics and one at least of on_empty, on_reject, max_attempts"),
        ([{"on_empty": "reject"}], "topics is a list of texts, with one at least"),
        ([{"topics": ["a.#/b"], "on_empty": "reject"}], "mixes . and /"),
        ([{"topics": ["a"], "on_empty": "drop"}], "on_empty is accept, release or reject"),
        ([{"topics": ["a"], "on_reject": "drop"}], "on_reject is accept or report"),
        ([{"topics": ["a"], "max_attempts": 0}], "max_attempts is 1 to 1000000"),
        ([{"topics": ["a"], "max_attempts": "x"}], "max_attempts is 1 to 1000000"),
        ([{"topics": ["a"], "retry_first_s": 0}], "retry_first_s is 0.01 to 86400 seconds"),
        ([{"topics": ["a"], "retry_first_s": 9, "retry_cap_s": 3}], "retry_first_s is at most retry_cap_s"),
        ([{"topics": ["a"], "attempts": 3}], "a table has dead_letter, dead_letter_wait_s, max_attempts, on_empty"),
    ],
)
def test_a_rule_for_topics_that_cannot_be_used_is_refused(value: object, why: str) -> None:
    with pytest.raises(NotAllowed, match=re.escape(why)):
        topic_rules(value)


def test_a_router_with_such_a_rule_does_not_start_and_names_the_setting() -> None:
    with pytest.raises(CliError) as refused:
        load(None, {"topic_rules": '[{"topics": ["a"], "on_empty": "drop"}]'}, {})
    assert "topics.rules" in refused.value.what
    assert 'on_empty = "accept", "release" or "reject"' in refused.value.why


def test_the_rules_of_the_page_mean_what_it_says_and_are_printed_as_a_file(tmp_path: Path) -> None:
    blocks = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    file = tmp_path / "router.toml"
    file.write_text("standalone = true\n" + "".join(each for each in blocks if "topics.rules" in each))
    first = load(str(file), {}, {})
    audit, orders = first.config.policy_of("audit.eu"), first.config.policy_of("orders.eu")
    assert (audit.on_empty_exactly_once, audit.max_attempts) == (OnEmpty.REJECT, 10)
    assert (orders.max_attempts, orders.retry_first_s, orders.retry_cap_s) == (3, 0.5, 10.0)
    assert orders.report_rejections
    file.write_text(format_config(first))
    assert load(str(file), {}, {}).config == first.config


# --- routers ----------------------------------------------------------------------------------------------------------


async def outcomes(router: RouterProcess, topic: str) -> tuple[Any, DispositionReceived]:
    """What our client and a stock client get for a message that nobody subscribed to."""
    async with connect(router.url) as client:
        ours = await (await (await client.publisher(topic)).submit(b"1"))
    raw = await RawClient.connect(router.port)
    stock = await raw.publisher(topic, exactly_once=False)
    stock.send(b"1", b"1")
    reported = await stock.outcome(b"1")
    raw.cut()
    return ours, reported


async def test_publishers_of_a_topic_get_what_its_rule_says_and_others_what_they_got_before() -> None:
    async with running_router("--standalone", f"--topics-rules={json.dumps(RULES)}") as router:
        ours, stock = await outcomes(router, "audit.eu")
        assert (ours.kind, ours.condition) == (OutcomeKind.REJECTED, "amqp:not-found")
        assert "subscribe first" in ours.description
        assert isinstance(stock.state, Rejected)
        assert stock.state.error is not None
        assert stock.state.error.condition == "amqp:not-found"
        ours, stock = await outcomes(router, "orders.eu")
        assert ours.is_accepted
        assert stock.state == RELEASED


async def test_a_reload_holds_for_links_that_are_attached_and_a_file_with_a_mistake_changes_nothing(
    tmp_path: Path,
) -> None:
    file = tmp_path / "router.toml"
    begin = 'id = "r1"\nstandalone = true\n[log]\nformat = "json"\n'
    file.write_text(begin)
    async with running_router(f"--config={file}") as router, connect(router.url) as client:
        publisher = await client.publisher("audit.eu")
        assert (await (await publisher.submit(b"1"))).is_accepted
        file.write_text(begin + '[[topics.rules]]\ntopics = ["audit.#"]\non_empty = "reject"\n')
        router.process.send_signal(signal.SIGHUP)
        await until(partial(policy, router), lambda found: found.startswith("on_empty=reject "))
        outcome = await (await publisher.submit(b"2"))
        assert (outcome.kind, outcome.condition) == (OutcomeKind.REJECTED, "amqp:not-found")
        file.write_text(begin + '[[topics.rules]]\ntopics = ["audit.#"]\non_empty = "drop"\n')
        status, reported = await call(router.http, "POST", entity("router", "r1", "reload"), {})
        assert (status, "topics.rules" in reported["error"], "Nothing has changed" in reported["error"]) == (
            409,
            True,
            True,
        )
        assert (await (await publisher.submit(b"3"))).kind is OutcomeKind.REJECTED


async def policy(router: RouterProcess) -> str:
    _, row = await call(router.http, "GET", entity("topic", "audit.eu"))
    return str(row["policy"])


async def test_management_sets_rules_and_shows_which_one_decides_for_a_topic() -> None:
    async with running_router("--standalone", "--id=r1") as router, connect(router.url) as client:
        publisher = await client.publisher("audit.eu")
        config, explain = entity("config", "router"), entity("router", "r1", "explain")
        status, row = await call(router.http, "PUT", config, {"topics.rules": RULES})
        assert (status, row["topics.rules"][0]["on_empty"]) == (200, "reject")
        assert (await (await publisher.submit(b"1"))).kind is OutcomeKind.REJECTED
        assert await policy(router) == "on_empty=reject on_reject=accept max_attempts=10 retry=1-60s"
        _, row = await call(router.http, "POST", explain, {"publish": "orders"})
        assert row["policy"].endswith("max_attempts=3 retry=1-60s, by rule 2 of topics.rules")
        status, _ = await call(router.http, "PUT", config, {"topics.rules": []})
        _, row = await call(router.http, "POST", explain, {"publish": "orders"})
        assert (status, row["policy"].endswith(", by no rule of topics.rules")) == (200, True)
        status, answer = await call(router.http, "PUT", config, {"topics.rules": [{"topics": ["a"]}]})
        assert (status, "a rule has topics" in answer["error"]) == (400, True)


async def test_what_a_subscriber_processed_before_its_publishers_router_was_killed_is_not_rejected_after_it(
    tmp_path: Path,
) -> None:
    settings = {"etcd.lease_ttl_s": "3", "topics.rules": json.dumps(RULES)}
    async with LocalNetwork(2, log_folder=tmp_path, settings=settings) as network:
        urls = {name: router.url for name, router in network.routers.items()}
        async with (
            connect([urls["r1"], urls["r2"]], container_id="shop") as shop,
            connect(urls["r2"], container_id="till") as till,
        ):
            publisher = await shop.publisher("audit.eu", name="p")
            subscriber = await till.subscriber("audit.#", name="s")
            sending = await publisher.submit(b"x")
            assert (await subscriber.receive()).body == b"x"
            network.sigstop("r1")
            await subscriber.unsubscribe()
            await network.kill("r1")
            assert (await sending).is_accepted
            assert (await (await publisher.submit(b"y"))).kind is OutcomeKind.REJECTED
