"""No secret is in what a program prints, logs or raises, however wrongly its address is written."""

from __future__ import annotations

import asyncio
import tomllib
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bridges.node.errors import NodeError
from bridges.spark.options import source_options
from bridges.workqueue.errors import QueueError
from bridges.workqueue.opening import check_address, open_any_store
from oncewire.cli.errors import CliError
from oncewire.client import connect
from oncewire.client.errors import ClientError
from oncewire.client.failover import parse_url
from oncewire.client.transactions.opening import open_store
from router.operator.reload import values_of
from router.settings.config import RouterConfig
from router.settings.config_loading import format_config, load

HALVES = ("PaSs", "wOrD")
"""Of each password below: a message must not even hold one of them."""
ROUTER_URLS = (
    "amqp://ann:PaSswOrD@",
    "amqp://ann:PaSs/wOrD@127.0.0.1",
    "amqp://ann:PaSs#wOrD@127.0.0.1",
    "amqp://ann:PaSs?wOrD@127.0.0.1",
    "amqp://ann:PaSs@wOrD@127.0.0.1:x",
    "amqp://ann:PaSs[wOrD@127.0.0.1",
    "http://ann:PaSswOrD@127.0.0.1",
    "ann:PaSswOrD@127.0.0.1:port",
    "amqp://PaSswOrD@127.0.0.1",
)
STORE_URLS = (
    "mysql://ann:PaSs/wOrD@127.0.0.1/db",
    "mysql://ann:PaSs[wOrD@127.0.0.1/db",
    "mysql://127.0.0.1/db?password=PaSswOrD",
    "ann:PaSswOrD@127.0.0.1/db",
)
POSTGRESQL_URLS = (
    "postgresql://ann:PaSs%zzwOrD@127.0.0.1:1/db",
    "postgresql://ann:PaSs wOrD@127.0.0.1:1/db",
    "postgresql://ann:PaSswOrD@[::1/db",
    "postgresql://ann:PaSswOrD@[::1]x/db",
    "postgresql://127.0.0.1:1/db?password=PaSs%zzwOrD",
    "postgresql://ann:PaSswOrD@127.0.0.1:1/db",
)


def opened(url: str) -> None:
    asyncio.run(open_any_store(url))


def of_a_subscription(url: str) -> None:
    source_options({"amqp.urls": url, "bridge.folder": "/tmp", "subscribe": "orders", "subscription": "s"})


def assert_refused_without_secret(use: Callable[[str], object], url: str) -> None:
    with pytest.raises((CliError, ClientError, NodeError, QueueError)) as refused:
        use(url)
    reported = [*traceback.format_exception(refused.value), repr(refused.value)]
    assert not [line for line in reported for half in HALVES if half in line], reported


@pytest.mark.parametrize("url", ROUTER_URLS)
@pytest.mark.parametrize("use", [parse_url, connect, of_a_subscription])
def test_a_wrong_address_of_a_router_is_refused_without_its_password(use: Callable[[str], object], url: str) -> None:
    assert_refused_without_secret(use, url)


@pytest.mark.parametrize("url", STORE_URLS)
@pytest.mark.parametrize("use", [lambda url: open_store(url, "a"), opened, check_address])
def test_a_wrong_address_of_a_store_is_refused_without_its_password(use: Callable[[str], object], url: str) -> None:
    assert_refused_without_secret(use, url)


@pytest.mark.needs("psycopg")
@pytest.mark.parametrize("url", POSTGRESQL_URLS)
@pytest.mark.parametrize("use", [lambda url: open_store(url, "a"), opened])
def test_an_address_that_postgresql_refuses_is_not_repeated(use: Callable[[str], object], url: str) -> None:
    assert_refused_without_secret(use, url)


def test_an_addresss_text_forms_hold_no_password() -> None:
    address = parse_url("amqps://ann:PaSswOrD@127.0.0.1")
    assert address.password == "PaSswOrD"
    assert not any(half in str(address) + repr(address) for half in HALVES)


# --- settings ---------------------------------------------------------------------------------------------------------

SETTINGS: dict[str, Any] = {
    "users": "ann:PaSswOrD",
    "inter_router_password": "PaSswOrD",
    "etcd_password": "PaSswOrD",
    "queue_store": "postgresql://ann:PaSswOrD@db/queues",
    "jwt_jwks_url": "https://ann:PaSswOrD@issuer/keys",
    "jwt_issuer": "issuer",
    "jwt_audience": "oncewire",
    "telemetry_endpoint": "http://ann:PaSswOrD@collector",
}


def test_no_secret_is_in_printed_settings_in_those_of_the_api_or_in_the_text_form_of_the_configuration() -> None:
    loaded = load(None, SETTINGS, {})
    shown = format_config(loaded), str(values_of(loaded.config)), repr(loaded.config)
    for text in shown[:2]:
        assert not any(half in text for half in HALVES), text
    assert "PaSswOrD" not in repr(RouterConfig(inter_router_password="PaSswOrD", queue_store="PaSswOrD"))
    tomllib.loads(shown[0])


def test_patterns_of_rules_that_look_like_an_address_with_a_user_are_printed(tmp_path: Path) -> None:
    one = "{take = 'URI', pattern = 'spiffe://x/(.+)', user = 'u'}"
    other = "{take = 'email', pattern = '(.+)@x', user = 'u'}"
    file = tmp_path / "router.toml"
    file.write_text(f"""listen.tls = true\ntls.cert_file = "own.pem"\ntls.ca_file = "ca.pem"
tls.client_certificates = "optional"\nexternal.rules = [{one}, {other}]\n""")
    printed = tomllib.loads(format_config(load(str(file), {}, {})))
    assert [rule["pattern"] for rule in printed["external"]["rules"]] == ["spiffe://x/(.+)", "(.+)@x"]


@pytest.mark.parametrize("name", ["etcd_endpoints", "http_origins", "http_port", "log_level"])
@pytest.mark.parametrize("url", ["http://ann:PaSs/wOrD@x", "http://ann:PaSs@wOrD@x y", "amqp://ann:PaSs wOrD@x"])
def test_a_setting_that_is_refused_is_shown_without_the_password_in_its_address(name: str, url: str) -> None:
    assert_refused_without_secret(lambda given: load(None, {name: given}, {}), url)


@pytest.mark.parametrize("url", ["http://ann:PaSs/wOrD@x", "http://ann:PaSs@wOrD@x"])
def test_of_an_address_that_is_wrong_and_taken_no_part_of_the_password_is_shown(url: str) -> None:
    loaded = load(None, {"telemetry_endpoint": url}, {})
    shown = format_config(loaded) + str(values_of(loaded.config))
    assert not any(half in shown for half in HALVES), shown


def test_addresses_of_etcd_have_no_user(tmp_path: Path) -> None:
    file = tmp_path / "router.toml"
    file.write_text('etcd.endpoints = ["http://ann:PaSswOrD@127.0.0.1:2379"]\n')
    assert_refused_without_secret(lambda path: load(path, {}, {}), str(file))
