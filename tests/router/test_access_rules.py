"""Rules of the settings: who may publish and subscribe what, whose links they are, how slow a subscriber may be."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest

from delivery_records.model.patience import Patience, SlowAction
from oncewire.cli.errors import CliError
from oncewire.client import ClientEvent, LinkRefused, Message, SubscriptionsEnded, connect
from oncewire.settings.parsers import NotAllowed
from oncewire.wire import vocabulary
from oncewire.wire.vocabulary import ANONYMOUS
from router.settings.access_rules import (
    AccessRule,
    SlowRule,
    access_rules,
    adopts,
    allowing_rule,
    covers,
    may_publish,
    may_subscribe,
    patience_of,
    slow_rules,
)
from router.settings.config_loading import format_config, load
from router.settings.groups import groups_of
from tests.router.processes import running_router
from tests.router.raw_client import RawClient

PAGE = Path(__file__).parents[2] / "docs/rights.md"
GUARDED = ("--standalone", "--listen-allow-anonymous=never", "--users=ann:a,bob:b")


@pytest.mark.parametrize(
    ("allowed", "wanted", "is_covered"),
    [
        ("orders", "orders", True),
        ("orders.*", "orders.eu", True),
        ("orders/*", "orders.eu", True),
        ("orders.*", "orders.*", True),
        ("orders.*", "orders.#", False),
        ("orders.#", "orders", True),
        ("orders.#", "orders.*.new", True),
        ("orders.#", "#", False),
        ("#", "#", True),
        ("*", "orders.eu", False),
        ("*.eu", "#.eu", False),
        ("#.eu", "#.eu", True),
        ("orders", "orders.eu", False),
        ("queue://*", "queue://jobs", True),
        ("queue://jobs", "queue://mail", False),
        ("queue://*", "journal://jobs", False),
        ("journal://*", "journal://orders.eu", False),
        ("journal://#", "journal://orders.eu", True),
        ("journal://orders.*", "journal://orders.eu", True),
        ("journal://orders.#", "journal://orders", True),
        ("journal://orders.eu", "journal://orders.eu", True),
        ("journal://orders.eu", "journal://orders/eu", False),
        ("journal://orders", "journal://orders.eu", False),
        ("journal://orders", "journal://orders#", False),
        ("journal://a*", "journal://b", False),
        ("#", "journal://orders", True),
    ],
)
def test_a_pattern_covers_what_matches_nothing_else(allowed: str, wanted: str, is_covered: bool) -> None:
    assert covers(allowed, wanted) is is_covered


def test_what_no_rule_allows_is_refused_and_without_rules_all_is_allowed() -> None:
    assert may_publish((), "ann", "orders")
    rules = (AccessRule(("ann", "b*"), publish=("orders.#",)), AccessRule((ANONYMOUS,), subscribe=("public.*",)))
    assert may_publish(rules, "ann", "orders.eu")
    assert may_publish(rules, "bob", "orders")
    assert not may_publish(rules, "eve", "orders")
    assert not may_subscribe(rules, "ann", "orders")
    assert may_subscribe(rules, "", "public.news")
    assert not may_subscribe(rules, "ann", "public.news")
    assert may_subscribe((AccessRule(("*",), subscribe=("#",)),), "", "public.news")


def test_the_name_in_an_address_may_have_tokens_though_the_address_has_a_slash() -> None:
    (rule,) = access_rules([{"users": ["ann"], "subscribe": ["journal://orders.*"]}])
    assert may_subscribe((rule,), "ann", "journal://orders.eu")
    with pytest.raises(NotAllowed, match="mixes"):
        access_rules([{"users": ["ann"], "subscribe": ["journal://orders.*/new"]}])


@pytest.mark.parametrize("user", ["#", "*", "a.b", "a/b", ""])
def test_a_users_name_cannot_widen_a_pattern(user: str) -> None:
    rules = (AccessRule(("*",), publish=("in.${user}.x",)),)
    assert not any(may_publish(rules, user, topic) for topic in ("in.ann.x", f"in.{user}.x", "in..x"))
    assert may_publish(rules, "ann", "in.ann.x")


def test_the_first_rule_for_slow_subscribers_counts() -> None:
    rules = (
        SlowRule(("audit.#",), action="wait"),
        SlowRule(("#",), ("ann",), 60.0, "detach"),
        SlowRule(after_s=600.0, action="expel"),
    )
    assert patience_of(rules, "ann", "audit.log") is None
    assert patience_of(rules, "ann", "orders") == Patience(60.0, SlowAction.DETACH)
    assert patience_of(rules, "", "#") == Patience(600.0, SlowAction.EXPEL)
    assert patience_of((), "ann", "orders") is None


def test_only_who_has_logged_in_adopts_links() -> None:
    assert adopts(("*",), "ann")
    assert not adopts(("*",), "")
    assert not adopts(("bob",), "ann")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("[{", "in a text it is JSON"),
        ([{"user": ["ann"]}], "a table has publish, replay, subscribe, users, vhosts, view and nothing else"),
        ([{"publish": ["a"]}], "users is a list of texts, with one at least"),
        ([{"users": ["ann"], "publish": ["a.#/b"]}], "mixes . and /"),
        ([{"users": ["ann"]}] * 1001, "there may be 1000 of them"),
        ({"users": ["ann"]}, "it is a list of tables"),
    ],
)
def test_a_rule_of_access_that_cannot_be_used_is_refused(value: object, why: str) -> None:
    with pytest.raises(NotAllowed, match=re.escape(why)):
        access_rules(value)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ([{"action": "stop"}], "action is one of wait, detach, expel"),
        ([{"action": "expel"}], "after_s must be 1 to 604800 seconds"),
        ([{"action": "expel", "after_s": "1"}], "after_s is a number of seconds"),
        ([{"action": "expel", "after_s": 60, "topics": []}], "topics is a list of texts, with one at least"),
    ],
)
def test_a_rule_for_slow_subscribers_that_cannot_be_used_is_refused(value: object, why: str) -> None:
    with pytest.raises(NotAllowed, match=re.escape(why)):
        slow_rules(value)


def test_a_router_with_a_rule_that_cannot_be_used_does_not_start() -> None:
    with pytest.raises(CliError) as refused:
        load(None, {"access_rules": "[{"}, {})
    assert "access.rules" in refused.value.what


def test_settings_with_rules_are_printed_as_a_file_that_gives_them_again(tmp_path: Path) -> None:
    file = tmp_path / "router.toml"
    file.write_text(
        'standalone = true\nadopts_links = ["ann"]\nslow.rules = [{action = "expel", after_s = 60}]\n'
        'access.rules = [{users = ["ann"], publish = ["in.${user}"]}, {users = ["*"], subscribe = ["#"]}]\n'
    )
    first = load(str(file), {}, {})
    file.write_text(format_config(first))
    assert load(str(file), {}, {}).config == first.config


def test_the_rules_of_the_page_mean_what_it_says(tmp_path: Path) -> None:
    blocks = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    file = tmp_path / "router.toml"
    file.write_text("".join(each for each in blocks if re.search(r"access\.rules|slow\.rules|\[groups\]", each)))
    config = load(str(file), {}, {}).config
    access, slow = config.access_rules, config.slow_rules
    assert may_subscribe(access, "audit-7", "orders.*.new")
    assert not may_subscribe(access, "audit-7", "#")
    assert may_publish(access, "shop", "orders.eu")
    assert may_subscribe(access, "shop", "queue://shipping")
    assert not may_publish(access, "billing", "orders.eu")
    assert may_publish(access, "ann", "inbox.ann")
    assert not may_publish(access, "a.b", "inbox.a.b")
    assert may_subscribe(access, "", "public.news")
    assert allowing_rule(access, "replay", "vic", "queue://orders", groups_of(config.groups, "vic")) is not None
    assert allowing_rule(access, "view", "shop", "queue://mails", groups_of(config.groups, "shop")) is None
    assert patience_of(slow, "guest-1", "audit.log") is None
    assert patience_of(slow, "guest-1", "orders") == Patience(30.0, SlowAction.EXPEL)
    assert patience_of(slow, "ann", "orders") == Patience(600.0, SlowAction.DETACH)


def test_rules_in_a_text_are_json() -> None:
    assert access_rules('[{"users": ["ann"], "publish": ["a"]}]') == (AccessRule(("ann",), ("a",)),)
    assert access_rules("") == ()


async def test_a_refused_link_notifies_the_operator_the_rule_and_the_client_little(tmp_path: Path) -> None:
    config = tmp_path / "router.toml"
    text = 'standalone = true\nusers = {ann = "a", bob = "b"}\nlisten.allow_anonymous = "never"\n'
    rule = '[[access.rules]]\nusers = ["ann"]\npublish = ["orders.#"]\nsubscribe = ["orders.*"]\n'
    config.write_text(text + rule)
    async with running_router(f"--config={config}") as router:
        urls = [f"amqp://{user}@127.0.0.1:{router.port}" for user in ("ann:a", "bob:b")]
        async with connect(urls[0]) as ann, connect(urls[1]) as bob:
            publisher = await ann.publisher("orders.eu")
            subscriber = await ann.subscriber("orders.*")
            sending = await publisher.submit(b"1")
            for attach in (bob.publisher("orders.eu"), bob.subscriber("queue://jobs"), ann.subscriber("#")):
                with pytest.raises(LinkRefused) as refused:
                    await attach
                assert refused.value.condition == "amqp:unauthorized-access"
                assert "access.rules" not in str(refused.value)
            delivery = await subscriber.receive()
            await delivery.accept()
            assert (await sending).is_accepted
            config.write_text(text + rule.replace("ann", "bob"))
            router.process.send_signal(signal.SIGHUP)
            with pytest.raises(LinkRefused):
                await subscriber.receive()
            await bob.publisher("orders.eu")
        log = await router.stop()
    # Of refusals of one address the first is written out, the others are counted.
    assert "no rule of access.rules lets bob publish to orders.eu" in log


async def test_two_users_with_the_same_names_do_not_meet_and_subscribers_know_who_publishes() -> None:
    async with running_router(*GUARDED) as router:
        urls = [f"amqp://{user}@127.0.0.1:{router.port}" for user in ("ann:a", "bob:b")]
        async with connect(urls[0], container_id="app") as ann, connect(urls[1], container_id="app") as bob:
            of_ann = await ann.subscriber("orders", name="in")
            of_bob = await bob.subscriber("orders", name="in")
            publisher = await bob.publisher("orders", name="out")
            sending = await publisher.submit(b"1")
            for subscriber in (of_ann, of_bob):
                delivery = await subscriber.receive()
                assert (delivery.user, delivery.publisher) == ("bob", "app/out")
                await delivery.accept()
            assert (await sending).is_accepted


async def test_without_a_login_no_user_is_reported() -> None:
    async with running_router("--standalone") as router, connect(router.url) as client:
        subscriber = await client.subscriber("orders")
        sending = await (await client.publisher("orders")).submit(b"1")
        delivery = await subscriber.receive()
        assert delivery.user == ""
        await delivery.accept()
        assert (await sending).is_accepted


async def test_with_logins_a_publisher_without_one_is_stated_as_such_and_cannot_be_anybody_else() -> None:
    async with running_router("--standalone", "--users=ann:a") as router, connect(router.url) as client:
        subscriber = await client.subscriber("orders")
        sending = await (await client.publisher("orders")).submit(Message(b"1", annotations={vocabulary.USER: "ann"}))
        delivery = await subscriber.receive()
        assert (delivery.user, delivery.message.annotations[vocabulary.USER]) == ("", ANONYMOUS)
        await delivery.accept()
        assert (await sending).is_accepted


async def test_who_looks_a_subscription_up_has_the_patience_of_its_topic() -> None:
    rules = json.dumps([{"topics": ["orders"], "after_s": 60, "action": "detach"}])
    async with running_router("--standalone", f"--slow-rules={rules}") as router:
        for topic in ("orders", None):
            client = await RawClient.connect(router.port, container_id="app")
            link = await client.subscriber(topic)
            properties = link.reply.properties
            assert properties is not None
            assert properties[vocabulary.WHEN_SLOW] == "detach"
            client.cut()


@pytest.mark.parametrize("action", ["expel", "detach"])
async def test_a_publisher_goes_on_when_a_subscriber_that_answers_nothing_is_ended(action: str) -> None:
    rules = json.dumps([{"topics": ["orders"], "after_s": 1, "action": action}])
    heard: list[SubscriptionsEnded] = []

    def on_event(event: ClientEvent) -> None:
        if isinstance(event, SubscriptionsEnded):
            heard.append(event)

    async with (
        running_router("--standalone", f"--slow-rules={rules}") as router,
        connect(router.url, container_id="shop", on_event=on_event) as client,
    ):
        subscriber = await RawClient.connect(router.port, container_id="slow")
        link = await subscriber.subscriber("orders", timeout=2)
        stated = link.reply.properties
        assert stated is not None
        assert (stated[vocabulary.PATIENCE], stated[vocabulary.WHEN_SLOW]) == (1, action)
        publisher = await client.publisher("orders", name="out")
        sending = await publisher.submit(b"1")
        assert (await sending).is_accepted
        # Before the outcome (I-3b), whether it was expelled or its time was over while it was detached.
        assert heard == [SubscriptionsEnded("out", ("slow/sub",), 1, sending.number)]
        assert publisher.statistics.subscriptions_ended == 1
        log = await router.stop()
    assert '"event": "subscriber_slow"' in log
