"""O-8: what becomes of rows whose session the network has forgotten, at a real router."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from bridges.node.identity import identity_of
from bridges.node.model import Publishing
from bridges.node.outbox import Outbox
from oncewire.client import ClientEvent, NewIncarnation, connect
from tests.client.shell_helpers import LONG, until
from tests.node.parts import decide, publishing
from tests.router.processes import start_router


@pytest.mark.parametrize("resends", [True, False], ids=["exactly-once", "at-most-once"])
async def test_rows_of_a_session_that_the_network_forgot_come_again_as_they_were_or_are_given_up(
    resends: bool, tmp_path: Path
) -> None:
    """The only router dies when the rows are delivered and not accepted; sessions were in its memory."""
    outbox = Outbox(tmp_path / "sink.db", "sink")
    events: list[ClientEvent] = []
    router = await start_router("--standalone")
    port = router.port
    try:
        async with connect(router.url, container_id="reader", on_event=events.append) as client:
            subscriber = await client.subscriber("out", name="s")
            async with publishing(outbox.path, router.url) as publisher:
                decide(outbox, 0, [("out", b"one"), ("out", b"two")], Publishing(resends_in_doubt=resends))
                publisher.wake()
                before = [await subscriber.receive(LONG) for _ in range(2)]
            await router.stop(signal.SIGKILL)
            router = await start_router("--standalone", f"--listen-port={port}")
            await until(lambda: any(isinstance(event, NewIncarnation) for event in events))
            await subscriber._opened()
            for delivery in before:
                await delivery.accept()
            async with publishing(outbox.path, router.url):
                if resends:
                    after = [await subscriber.receive(LONG) for _ in range(2)]
                    assert [identity_of(each.payload) for each in after] == [
                        identity_of(each.payload) for each in before
                    ]
                    for delivery in after:
                        await delivery.accept()
                await until(lambda: outbox.marks().waiting_manifests == 0)
            assert subscriber.waiting == 0
            manifest = outbox.manifest(0)
            assert manifest is not None
            assert manifest.not_accepted == (0 if resends else 2)
    finally:
        await router.stop(signal.SIGKILL)
        outbox.close()
