"""New certificates of a new authority in a network under load: no delivery is lost, doubled, or without an outcome."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
from functools import partial
from pathlib import Path

import pytest

from chaos.clients.events import Disconnected
from router.commands.local_network import LocalNetwork
from tests.network.harness import Experiment, Load, assert_nothing_wrong, network_under_load
from tests.support.certificates import TestAuthority, replace_file
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

LOAD = Load(
    publishers={"p1": "r1", "p2": "r2"},
    subscribers={"s1": "r2", "s2": "r3", "s3": "r1"},
    messages=9_000,
    seconds=12.0,
    batch=50,
    batch_s=0.05,
)


async def shown(network: LocalNetwork, router: str, trusted: Path) -> bytes:
    """The certificate that a router shows to a new connection."""
    context = ssl.create_default_context(cafile=trusted)
    port = network.routers[router].amqp_port
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    found = writer.get_extra_info("ssl_object").getpeercert(True)
    writer.close()
    assert isinstance(found, bytes)
    return found


def _has_more(log: Path, reloads: int) -> bool:
    return log.read_text().count("config_reloaded") > reloads


async def reload_all(experiment: Experiment) -> None:
    """SIGHUP to one router after the other; each has logged that it read its files again."""
    for name, router in experiment.network.routers.items():
        log = experiment.folder / f"{name}.log"
        before = log.read_text().count("config_reloaded")
        os.kill(router.pid, signal.SIGHUP)
        await asyncio.to_thread(wait_until, partial(_has_more, log, before), f"{name} reads its files again")


async def test_certificates_and_their_authority_are_replaced_in_a_network_under_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = TestAuthority(tmp_path / "old"), TestAuthority(tmp_path / "new")
    both, own = tmp_path / "both.pem", old.issue("router")
    trusted, certificate, key = (tmp_path / f"{name}.pem" for name in ("trusted", "certificate", "key"))
    both.write_bytes(old.file.read_bytes() + new.file.read_bytes())
    for path, source in ((trusted, old.file), (certificate, own.certificate), (key, own.key)):
        path.write_bytes(source.read_bytes())
    monkeypatch.setenv("SSL_CERT_FILE", str(both))  # what the clients trust
    settings = {
        "listen.tls": "true",
        "inter_router.tls": "true",
        "tls.cert_file": str(certificate),
        "tls.key_file": str(key),
        "tls.ca_file": str(trusted),
    }
    async with network_under_load(tmp_path, LOAD, settings=settings) as experiment:
        network = experiment.network
        await experiment.until_published(0.1)
        replace_file(trusted, both.read_bytes())
        await reload_all(experiment)
        fresh = new.issue("router")
        replace_file(key, fresh.key.read_bytes())
        replace_file(certificate, fresh.certificate.read_bytes())
        await reload_all(experiment)
        replace_file(trusted, new.file.read_bytes())
        await reload_all(experiment)
        for name in network.routers:
            assert await shown(network, name, new.file)
        clients = {**experiment.trial.publishers, **experiment.trial.subscribers}.values()
        lost = [client.name for client in clients if any(isinstance(e, Disconnected) for e in client.history())]
        assert lost == []  # open connections go on
        await experiment.until_published(0.5)
        # Links and clients of this router begin anew, with what was loaded last.
        await network.terminate("r2")
        await network.restart("r2")
        verdict = await experiment.verdict()
        assert_nothing_wrong(experiment, verdict)
        assert verdict.total("lost") == verdict.total("duplicated") == 0
    for name in network.routers:
        assert "tls_refused" not in (tmp_path / f"{name}.log").read_text()
