"""`oncewire pub` and `oncewire sub` as processes against a router of the tests."""

from __future__ import annotations

import asyncio
import json
import math
import signal
import sys
from base64 import b64decode
from pathlib import Path
from uuid import UUID

import pytest

from oncewire.client import connect
from oncewire.wire import AmqpMap, BodyKind, Described, Message, ULong, encode_data_message
from tests.client.reference_router import TAG_BYTES
from tests.client.shell_helpers import LONG, error, until
from tests.client.wire_server import RELEASED, Network, WireServer
from tests.router.raw_client import RawClient

RUN = """
import sys, click
from oncewire.cli.run import run
from oncewire.client.cli import pub, sub
sys.exit(run(sys.argv[1:], click.Group("oncewire", commands={"pub": pub, "sub": sub})))
"""


async def start(*arguments: str, stdin: int | None = asyncio.subprocess.DEVNULL) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        RUN,
        *arguments,
        stdin=stdin,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def finish(process: asyncio.subprocess.Process, text: bytes | None = None) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    async with asyncio.timeout(LONG):
        out, err = await process.communicate(text)
    assert process.returncode is not None
    assert b"Traceback" not in err, err.decode()
    return process.returncode, out.decode(), err.decode()


async def test_lines_of_a_file_go_through_a_topic_to_sub(server: WireServer, network: Network, tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_bytes(b"first\n\nthird \xc3\xa4\r\nlast")
    subscriber = await start("sub", "news", "--count", "4", "--url", server.url)
    await until(lambda: network.topic("news").subscriptions)
    publisher = await start("pub", "news", "--file", str(file), "--url", server.url)
    assert (await finish(publisher))[:2] == (0, "published 4, accepted 4\n")
    code, out, err = await finish(subscriber)
    assert (code, out) == (0, "first\n\nthird ä\nlast\n")
    assert "subscribed to news" in err
    await until(lambda: not network.topic("news").subscriptions)


async def test_the_standard_input_is_sent_and_json_is_the_last_line(server: WireServer) -> None:
    publisher = await start("pub", "news", "--url", server.url, "--json", stdin=asyncio.subprocess.PIPE)
    code, out, _ = await finish(publisher, b"a\nb\n")
    assert code == 0
    report = json.loads(out.splitlines()[-1])
    assert (report["published"], report["accepted"], report["not_accepted"]) == (2, 2, 0)


async def test_a_sub_whose_journal_is_new_says_how_to_end_what_a_removed_one_has_left(
    server: WireServer, network: Network, tmp_path: Path
) -> None:
    journal = tmp_path / "j.db"
    arguments = ("sub", "news", "--count", "1", "--url", server.url, "--name", "s", "--journal", str(journal))
    for is_new in (True, False):
        subscriber = await start(*arguments)
        await until(lambda: network.topic("news").subscriptions)
        publisher = await start("pub", "news", "x", "--url", server.url)
        assert (await finish(publisher))[0] == 0
        _, _, err = await finish(subscriber)
        assert ("`oncewire inspect subscriptions --topic news` shows it" in err) == is_new
        assert ("`oncewire manage delete subscription NAME` ends it" in err) == is_new


async def test_sub_prints_json_lines(server: WireServer, network: Network) -> None:
    subscriber = await start("sub", "news", "--count", "1", "--url", server.url, "--json")
    await until(lambda: network.topic("news").subscriptions)
    async with connect(server.url) as client:
        publisher = await client.publisher("news")
        await publisher.send("hello", application_properties={"n": 1})
    _, out, _ = await finish(subscriber)
    line = json.loads(out)
    assert line["body"] == "hello"
    assert line["application_properties"] == {"n": 1}


async def test_sub_prints_json_of_what_json_cannot_say_and_accepts_it(server: WireServer, network: Network) -> None:
    subscriber = await start("sub", "news", "--count", "3", "--url", server.url, "--json")
    await until(lambda: network.topic("news").subscriptions)
    key = UUID(int=5)
    async with connect(server.url) as client:
        publisher = await client.publisher("news")
        for body in ({key: b"x", 1: math.nan}, {1: "a", "1": "b"}, AmqpMap(((1, "a"), (True, "b")))):
            message = Message(body, BodyKind.VALUE, application_properties={"p": {key: Described(ULong(1), body)}})
            assert (await publisher.send(message, timeout=LONG)).is_accepted
    _, out, _ = await finish(subscriber)
    lines = [json.loads(line, parse_constant=pytest.fail) for line in out.splitlines()]
    assert [line["body"] for line in lines] == [
        {str(key): "x", "1": "NaN"},
        [[1, "a"], ["1", "b"]],
        {"1": "a", "true": "b"},
    ]
    assert lines[0]["application_properties"] == {
        "p": {str(key): {"descriptor": 1, "value": {str(key): "x", "1": "NaN"}}}
    }


@pytest.mark.parametrize("options", [("--json",), ()])
async def test_sub_prints_what_it_cannot_decode_as_it_came(
    server: WireServer, network: Network, options: tuple[str, ...]
) -> None:
    malformed = b"\0Sw"
    subscriber = await start("sub", "news", "--count", "2", "--url", server.url, *options)
    await until(lambda: network.topic("news").subscriptions)
    raw = await RawClient.connect(server.port, "raw")
    link = (await raw.publisher("news")).link
    for tag, payload in enumerate((malformed, encode_data_message(b"next")), 1):
        link.send(tag.to_bytes(TAG_BYTES), payload)
    raw.flush()
    _, out, err = await finish(subscriber)
    raw.cut()
    assert "printed as it came" in err
    first, second = out.splitlines()
    if options:
        assert b64decode(json.loads(first)["undecodable"]) == malformed
        assert json.loads(second)["body"] == "next"
    else:
        assert (first.encode(), second) == (malformed, "next")


@pytest.mark.parametrize("more", [(), ("--file", "lines.txt", "--name", "p", "--journal", "j.db")])
async def test_pub_gives_each_message_the_group_and_the_ttl_that_are_asked_for(
    server: WireServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lines.txt").write_text("a\nb\n")
    typed = () if "--file" in more else ("a", "b")
    async with connect(server.url) as client:
        subscriber = await client.subscriber("news")
        publisher = await start("pub", "news", *typed, "--group", "ann", "--ttl", "2.5", "--url", server.url, *more)
        for _ in range(2):
            delivery = await subscriber.receive(LONG)
            properties = delivery.message.properties
            assert properties is not None
            assert properties.group_id == "ann"
            assert delivery.message.header is not None
            assert delivery.message.header.ttl == 2500
            await delivery.accept()
        assert (await finish(publisher))[0] == 0


async def test_lines_that_were_not_accepted_give_exit_code_1(server: WireServer, network: Network) -> None:
    network.outcomes.append(RELEASED)
    publisher = await start("pub", "news", "--url", server.url, stdin=asyncio.subprocess.PIPE)
    code, out, _ = await finish(publisher, b"a\nb\n")
    assert (code, out) == (1, "published 2, accepted 1\n")


async def test_an_interrupted_pub_goes_on_where_it_stopped(
    server: WireServer, network: Network, tmp_path: Path
) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("".join(f"{number}\n" for number in range(700)))
    arguments = ("pub", "news", "--file", str(file), "--url", server.url, "--name", "p")
    journal = ("--journal", str(tmp_path / "j.db"))
    async with connect(server.url) as client:
        subscriber = await client.subscriber("news")
        publisher = await start(*arguments, *journal)
        received: list[object] = []
        for _ in range(100):
            delivery = await subscriber.receive(LONG)
            received.append(delivery.body)
            await delivery.accept()
        publisher.send_signal(signal.SIGKILL)
        await publisher.wait()
        again = await start(*arguments, *journal)
        while len(received) < 700:
            delivery = await subscriber.receive(LONG)
            received.append(delivery.body)
            await delivery.accept()
        code, _, err = await finish(again)
        assert code == 0
        assert "resuming" in err
        assert received == [b"%d" % number for number in range(700)]
        # The file is done: the next run sends it anew.
        third = await start(*arguments, *journal)
        assert (await subscriber.receive(LONG)).body == b"0"
        third.send_signal(signal.SIGTERM)
        assert (await finish(third))[0] == 130


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_nameless_sub_that_is_stopped_leaves_no_subscription_behind(
    server: WireServer, network: Network, number: signal.Signals
) -> None:
    subscriber = await start("sub", "news", "--url", server.url)
    named = await start("sub", "news", "--url", server.url, "--name", "s", "--container-id", "c")
    await until(lambda: len(network.topic("news").subscriptions) == 2)
    for process in (subscriber, named):
        process.send_signal(number)
        assert (await finish(process))[:2] == (130, "")
    assert network.topic("news").subscriptions == ["c/s"]


async def test_a_pub_that_is_stopped_says_what_has_no_outcome(server: WireServer, network: Network) -> None:
    async with connect(server.url) as client:
        subscriber = await client.subscriber("news")
        publisher = await start("pub", "news", "--url", server.url, stdin=asyncio.subprocess.PIPE)
        assert publisher.stdin is not None
        publisher.stdin.write(b"one\n")
        assert (await subscriber.receive(LONG)).body == b"one"
        publisher.send_signal(signal.SIGINT)
        code, out, err = await finish(publisher)
        assert (code, out) == (130, "")
        assert "stopped before the end; messages without an outcome: 1" in err


async def test_a_pub_with_a_timeout_says_what_has_no_outcome_who_owes_it_and_what_to_do(server: WireServer) -> None:
    arguments = ("pub", "news", "one", "two", "three", "--url", server.url, "--timeout", "0.5")
    async with connect(server.url, container_id="shop") as client:
        subscriber = await client.subscriber("news", name="slow")
        publishing = await start(*arguments)
        await (await subscriber.receive(LONG)).accept()
        code, out, err = await finish(publishing)
        assert (code, out) == (3, "published 3, accepted 1, 2 without an outcome\n")
        assert "2 messages without an outcome (of this run: 2 to 3)" in err
        assert "not processed by, of the first 2: shop/slow (2)" in err
        assert "oncewire manage delete subscription 'shop/slow'" in err
        assert "sent again they are new messages" in err
        for _ in range(2):
            await (await subscriber.receive(LONG)).accept()
        publishing = await start(*arguments, "--json")
        report = json.loads((await finish(publishing))[1])
        assert report["unanswered"] == 3
        assert report["unanswered_messages"] == [[1, 3]]
        assert report["owed_by"] == {"shop/slow": 3}


async def test_a_pub_with_a_timeout_and_a_journal_is_resumed_by_the_same_command(
    server: WireServer, tmp_path: Path
) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("one\ntwo\n")
    journal = ("--name", "p", "--journal", str(tmp_path / "j.db"))
    arguments = ("pub", "news", "--file", str(file), "--url", server.url, *journal)
    async with connect(server.url, container_id="shop") as client:
        subscriber = await client.subscriber("news", name="slow")
        code, _, err = await finish(await start(*arguments, "--timeout", "0.5"))
        assert code == 3
        assert "run the same command again: it resumes these messages" in err
        again = await start(*arguments, "--timeout", str(LONG))
        received = []
        for _ in range(2):
            delivery = await subscriber.receive(LONG)
            received.append(delivery.body)
            await delivery.accept()
        assert received == [b"one", b"two"]
        assert (await finish(again))[0] == 0
        assert subscriber.waiting == 0


async def test_a_pub_with_a_timeout_waits_as_long_as_messages_get_outcomes(server: WireServer) -> None:
    async with connect(server.url, container_id="shop") as client:
        subscriber = await client.subscriber("news")
        publishing = await start("pub", "news", *map(str, range(5)), "--url", server.url, "--timeout", str(LONG))
        for _ in range(5):
            await (await subscriber.receive(LONG)).accept()
        assert (await finish(publishing))[:2] == (0, "published 5, accepted 5\n")


async def test_a_named_sub_gets_what_was_sent_while_it_was_disconnected(server: WireServer, network: Network) -> None:
    arguments = ("sub", "news", "--name", "s", "--container-id", "c", "--count", "1", "--url", server.url)
    async with connect(server.url) as client:
        publisher = await client.publisher("news")
        first = await start(*arguments)
        await until(lambda: network.topic("news").subscriptions == ["c/s"])
        await publisher.send(b"one", timeout=LONG)
        assert (await finish(first))[1] == "one\n"
        sending = await publisher.submit(b"two")
        second = await start(*arguments, "--unsubscribe")
        assert (await finish(second))[1] == "two\n"
        assert (await sending).is_accepted
        assert network.topic("news").subscriptions == []


@pytest.mark.parametrize("command", ["pub", "sub"])
async def test_no_router_is_said_in_three_lines(command: str) -> None:
    process = await start(command, "t", "--url", "amqp://127.0.0.1:1", "--connect-timeout", "0.3")
    code, out, err = await finish(process)
    assert (code, out) == (2, "")
    lines = err.splitlines()[-3:]
    assert lines[0] == "error: no router could be reached within 0.3 s"
    assert lines[1].startswith("why: amqp://127.0.0.1:1: ")
    assert lines[2].startswith("what to do: check that a router runs")


async def test_a_refusal_has_three_lines(server: WireServer) -> None:
    server.refuse.append(error("amqp:unauthorized-access", "topic t is not yours"))
    code, _, err = await finish(await start("sub", "t", "--url", server.url))
    assert code == 2
    assert "topic t is not yours" in err


@pytest.mark.parametrize(
    "arguments",
    [
        ("pub", "t", "--url", "http://x"),
        ("pub", "t", "--journal", "j.db"),
        ("pub", "t", "--timeout", "0"),
        ("pub", "t", "--timeout", "1", "--settled"),
        ("pub", "t", "--file", "nowhere.txt"),
        ("sub", "t", "--count", "0"),
        ("sub",),
    ],
)
async def test_misuse_is_exit_code_2_without_a_traceback(arguments: tuple[str, ...]) -> None:
    code, _, err = await finish(await start(*arguments))
    assert code == 2
    assert [line.partition(":")[0] for line in err.splitlines()[-3:]] == ["error", "why", "what to do"]


async def test_sub_ends_quietly_when_nobody_reads_its_output(server: WireServer, network: Network) -> None:
    process = await start("sub", "t", "--url", server.url)
    await until(lambda: network.topic("t").subscriptions)
    assert process.stdout is not None
    process._transport.get_pipe_transport(1).close()  # type: ignore[attr-defined]
    async with connect(server.url) as client:
        publisher = await client.publisher("t")
        _ = await publisher.submit(b"x")
        async with asyncio.timeout(LONG):
            assert await process.wait() == 0
        await publisher.flush(LONG)
