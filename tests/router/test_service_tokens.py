"""Services and operators log in with tokens, which are read again for each connection or request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from bridges.node.embedded import EmbeddedNode
from bridges.node.model import NodeSettings
from oncewire.cli.errors import CliError
from oncewire.cli.token import token_in
from oncewire.client import UsageError, connect
from oncewire.client.service import Service, ServiceLink, ServiceRefused
from oncewire.client.transactions import read_committed
from router.commands.manage import manage
from tests.client.shell_helpers import until
from tests.router.processes import RouterProcess, running_router
from tests.support.tokens import Issuer, settings_of_tokens
from tests.workqueue.amqp_world import bridge
from topology.cli import inspect
from topology.inspector.ask_cli import STATE_PATH, Api, Bearer
from topology.inspector.login_cli import authorization_of

LONG_S = 60.0


@pytest.fixture
def issuer() -> Issuer:
    return Issuer()


@asynccontextmanager
async def guarded(issuer: Issuer, folder: Path) -> AsyncIterator[RouterProcess]:
    """A router that wants logins of everybody; ann is an operator, all others are nobody."""
    flags = settings_of_tokens(jwks_file=str(issuer.write(folder / "keys.json")), leeway_s="0")
    async with running_router(
        "--standalone",
        "--listen-allow-anonymous=never",
        "--roles=ann=operator",
        "--http-anonymous-role=none",
        "--http-loopback-role=none",
        *flags,
    ) as router:
        yield router


def refuse(_link: ServiceLink) -> None:
    raise AssertionError("nobody attaches")


def service(router: RouterProcess, token: object) -> Service:
    return Service([router.url], ["queue://"], refuse, container_id="svc", token=token)  # type: ignore[arg-type]


@pytest.mark.slow
async def test_a_service_whose_token_expires_connects_again_with_the_token_that_is_in_its_file_by_then(
    issuer: Issuer, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    asked = 0

    def token() -> str:
        nonlocal asked
        asked += 1
        return token_in(file)()

    async with asyncio.timeout(LONG_S), guarded(issuer, tmp_path) as router:
        file.write_text(issuer.token("ann", 6))
        serving = service(router, token)
        running = asyncio.ensure_future(serving.run())
        await serving.wait_connected()
        await until(lambda: asked > 1)  # it has expired, and so has what is in the file
        file.write_text(issuer.token("ann") + "\n")
        await serving.wait_connected()
        assert not running.done()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        log = await router.stop()
    assert '"event": "login_expired"' in log


async def test_a_service_that_may_not_serve_or_whose_token_is_wrong_ends_with_the_reason(
    issuer: Issuer, tmp_path: Path
) -> None:
    expired = issuer.token("ann", -60)
    async with asyncio.timeout(LONG_S), guarded(issuer, tmp_path) as router:
        with pytest.raises(ServiceRefused, match=r"services\.role"):
            await service(router, lambda: issuer.token("bob")).run()
        with pytest.raises(ServiceRefused, match="does not accept the token") as refused:
            await service(router, lambda: expired).run()
        assert expired not in str(refused.value)
    with pytest.raises(UsageError, match="the login is not clear"):
        Service(["amqp://ann:a@localhost:1"], ["queue://"], refuse, container_id="svc", token=lambda: "x")
    with pytest.raises(UsageError, match="everybody on the way could read it"):
        await Service(["amqp://192.0.2.1:1"], ["queue://"], refuse, container_id="svc", token=lambda: "x").run()


async def test_commands_of_operators_and_an_edge_log_in_with_the_token_of_a_file(
    issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text(issuer.token("ann"))
    async with asyncio.timeout(2 * LONG_S), guarded(issuer, tmp_path) as router:
        where = ["--url", router.http, "--json"]
        for command, arguments in ((manage, ["list", "connection", *where]), (inspect, ["routers", *where])):
            for given in (["--token-file", str(file)], []):
                result = await asyncio.to_thread(CliRunner().invoke, command, [*arguments, *given])
                if given:
                    assert result.exit_code == 0, result.output
                else:
                    assert result.exit_code == 2
                    assert "--token-file" in result.output
        # Each request reads the file again.
        async with Api.at(router.http, Bearer(token_in(file))) as api:
            await api.get(STATE_PATH)
            file.write_text(issuer.token("bob"))
            with pytest.raises(CliError, match="refuses"):
                await api.get(STATE_PATH)
            file.write_text("no token")
            with pytest.raises(CliError, match="there is no token"):
                await api.get(STATE_PATH)
            file.write_text(issuer.token("ann"))
            await api.get(STATE_PATH)
        monkeypatch.setenv("ONCEWIRE_EDGE_TOKEN_FILE", str(file))
        async with bridge(f"sqlite:///{tmp_path / 'queues.db'}", [router.url]):
            pass  # it has reported that it is connected
        log = await router.stop()
    assert '"user": "ann"' in log


async def test_a_bridge_node_and_a_reader_of_transactions_log_in_with_tokens(issuer: Issuer, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(issuer.token("ann"))
    async with asyncio.timeout(2 * LONG_S), guarded(issuer, tmp_path) as router:
        settings = NodeSettings("node", tmp_path / "node", (router.url,), token_file=file)
        with EmbeddedNode(settings) as node:
            await asyncio.to_thread(node.subscribe, "flights", ["orders"])
            async with read_committed(router.url, "orders", token=token_in(file)) as reader:
                async with connect(router.url, token=token_in(file)) as client:
                    publisher = await client.publisher("orders")
                    await publisher.send(b"1")
                message = await anext(aiter(reader))
                assert (message.body, message.user) == (b"1", "ann")
            assert (await asyncio.to_thread(node.offsets, "flights")).last == 1
            await asyncio.to_thread(node.close)


async def test_no_token_is_sent_by_http_where_others_can_read_it_nor_beside_another_login(tmp_path: Path) -> None:
    bearer = Bearer(lambda: "x")
    for url, why in (("http://192.0.2.1:8672", "everybody on the way"), ("http://ann:a@127.0.0.1:1", "names a user")):
        with pytest.raises(CliError) as refused:
            async with Api.at(url, bearer):
                pass
        assert why in refused.value.why
    file = tmp_path / "token"
    file.write_text("x")
    result = CliRunner().invoke(inspect, ["--user", "ann", "--token-file", str(file)])
    assert result.exit_code == 2
    assert "it is not clear who logs in" in result.output
    assert authorization_of(None) is None
