"""etcd comes back without its data: exactly-once is lost for what was under way, and everybody is notified (c.3)."""

from __future__ import annotations

import shutil
from pathlib import Path

from oncewire.wire import ACCEPTED, Source, Target, decode_message
from router.commands.local_network import LocalNetwork
from tests.router.raw_client import EXACTLY_ONCE, RawClient
from tests.router.relay import assert_no_internal_error
from topology.etcd_server import EtcdServer, free_port


async def test_an_etcd_that_lost_its_data_ends_all_sessions_and_says_so(tmp_path: Path) -> None:
    async with EtcdServer(name="one", members={"one": free_port()}) as etcd:
        settings = {"etcd.lease_ttl_s": "3"}
        async with LocalNetwork(
            1, etcd_urls=etcd.urls, settings=settings, log_folder=tmp_path, log_level="info"
        ) as network:
            port = network.routers["r1"].amqp_port
            store, box = await RawClient.connect(port, "store"), await RawClient.connect(port, "box")
            subscriber = await store.subscriber("orders")
            publisher = await box.publisher("orders")
            publisher.send(b"t0", b"m0")
            first = await subscriber.delivery()
            await etcd.kill()
            shutil.rmtree(etcd.data_folder)
            await etcd.restart()
            await store.closed()  # the incarnation ends: its view is of a store that is no more
            await box.closed()
            await network.wait_ready("r1")
            box, store = await RawClient.connect(port, "box"), await RawClient.connect(port, "store")
            link = box.session.attach_sender(
                "pub", source=Source(address="pub"), target=Target(address="orders"), unsettled={b"t0": None},
                desired_capabilities=[EXACTLY_ONCE],
            )  # fmt: skip
            box.flush()
            refused = await box.detached(link)
            assert refused.error is not None
            assert refused.error.condition == "oncewire:session-expired"
            back = await store.subscriber("orders", unsettled={first.tag: ACCEPTED})
            assert back.reply.unsettled == {first.tag: None}, "kept until the application decides"
            publisher = await (await RawClient.connect(port, "box")).publisher("orders")
            publisher.send(b"t0", b"m0")  # in doubt: its first try was processed
            again = await back.delivery()
            assert decode_message(again.payload).body == b"m0"
            assert again.tag != first.tag, "the cluster nonce in the tag has changed"
            back.accept(again)
            assert (await publisher.outcome(b"t0")).state == ACCEPTED
        assert_no_internal_error(tmp_path)
