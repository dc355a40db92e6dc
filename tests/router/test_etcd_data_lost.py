"""etcd comes back without its data: exactly-once is lost for what was under way, and everybody is notified (c.3)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import aiohttp

from oncewire.wire import ACCEPTED, Source, Target, decode_message
from router.commands.local_network import LocalNetwork
from tests.router.raw_client import EXACTLY_ONCE, RawClient, until
from tests.router.relay import assert_no_internal_error
from tests.router.test_etcd_restored import oncewire_cluster
from tests.support.etcd_backup import BackedUpEtcd


async def answer_of(url: str) -> tuple[int, str]:
    """GET: (status, content)."""
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status, await answer.text()


async def test_an_etcd_that_lost_its_data_ends_all_sessions_once_an_operator_has_confirmed_it(tmp_path: Path) -> None:
    async with BackedUpEtcd(tmp_path) as etcd:
        settings = {"etcd.lease_ttl_s": "3"}
        async with LocalNetwork(
            1, etcd_urls=etcd.urls, settings=settings, log_folder=tmp_path, log_level="info"
        ) as network:
            port, http = network.routers["r1"].amqp_port, network.routers["r1"].http
            store, box = await RawClient.connect(port, "store"), await RawClient.connect(port, "box")
            subscriber = await store.subscriber("orders")
            publisher = await box.publisher("orders")
            publisher.send(b"t0", b"m0")
            first = await subscriber.delivery()
            assert "oncewire_history_lost 0.0" in (await answer_of(f"{http}/metrics"))[1]
            await etcd.wipe()
            await store.closed()  # the incarnation ends: its view is of a store that is no more
            await box.closed()

            def waits_for_an_operator(answer: tuple[int, str]) -> bool:
                return answer[0] == 503 and "oncewire cluster new-nonce" in answer[1]

            await until(lambda: answer_of(f"{http}/readyz"), waits_for_an_operator)
            assert "oncewire_history_lost 1.0" in (await answer_of(f"{http}/metrics"))[1]
            log = (tmp_path / "r1.log").read_text()
            (line,) = [line for line in log.splitlines() if "history_lost" in line]
            assert "WARNING" in line.upper()
            found: dict[str, Any] = await oncewire_cluster("show", f"--etcd={etcd.urls[0]}")
            assert found["nonce"] is None, "no router has begun anew by itself"
            await oncewire_cluster("new-nonce", f"--etcd={etcd.urls[0]}")
            await network.wait_ready("r1")
            assert "oncewire_history_lost 0.0" in (await answer_of(f"{http}/metrics"))[1]
            box, store = await RawClient.connect(port, "box"), await RawClient.connect(port, "store")
            link = box.session.attach_sender(
                "pub",
                source=Source(address="pub"),
                target=Target(address="orders"),
                unsettled={b"t0": None},
                desired_capabilities=[EXACTLY_ONCE],
            )
            box.flush()
            refused = await box.detached(link)
            assert refused.error is not None
            assert refused.error.condition == "oncewire:session-expired"
            back = await store.subscriber("orders", unsettled={first.tag: ACCEPTED})
            assert back.reply.unsettled == {first.tag: None}, "kept until the application decides"
            (row,) = json.loads((await answer_of(f"{http}/api/v1/subscriptions"))[1])["items"]
            assert (row["lag"], row["former"]) == (0, 1), "nobody will settle that one: it is no lag"
            publisher = await (await RawClient.connect(port, "box")).publisher("orders")
            publisher.send(b"t0", b"m0")  # in doubt: its first try was processed
            again = await back.delivery()
            assert decode_message(again.payload).body == b"m0"
            assert again.tag != first.tag, "the cluster nonce in the tag has changed"
            back.accept(again)
            assert (await publisher.outcome(b"t0")).state == ACCEPTED
        assert_no_internal_error(tmp_path)
