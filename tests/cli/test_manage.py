"""`oncewire manage` at a real router: what it shows, what it asks before it does something, and what it refuses."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path

from router.commands.local_network import LocalNetwork
from tests.router.processes import RouterProcess, running_router
from tests.router.raw_client import RawClient
from tests.support.commands import run
from tests.support.golden import assert_golden

GOLDEN = Path(__file__).parent / "golden" / "manage"
END_S = 60.0
PROGRAM = """
import sys, click
from oncewire.cli.run import run
from router.commands.manage import manage
sys.exit(run(["manage", *sys.argv[1:]], click.Group("oncewire", commands={"manage": manage})))
"""


run_manage = partial(run, program=PROGRAM)


async def assert_refused(name: str, *arguments: str, hide: str = "", **environment: str) -> None:
    """Asserts that a command is refused with the words of its golden file."""
    code, out, err = await run_manage(*arguments, **environment)  # type: ignore[arg-type]  # no name but of variables
    assert (code, out) == (2, ""), f"{name}: {code} {out!r} {err}"
    assert [line.partition(":")[0] for line in err.splitlines()[-3:]] == ["error", "why", "what to do"], err
    assert_golden(GOLDEN / f"{name}.txt", err.replace(hide, "URL") if hide else err)


async def test_entities_are_listed_and_shown(alpha: RouterProcess) -> None:
    box = await RawClient.connect(alpha.port, "box")
    await box.subscriber("orders")
    url = f"--url={alpha.http}"
    code, out, err = await run_manage("list", "topic", url)
    assert (code, err) == (0, "")
    assert out.splitlines()[0].split() == ["topic", "pubs", "subs", "waiting", "pub/s", "deliv/s"]
    assert out.splitlines()[1].split() == ["orders", "0", "1", "0", "0", "0"]
    code, out, _ = await run_manage("list", "subscription", url, "--json")
    assert (code, json.loads(out)["total"]) == (0, 1)
    code, out, _ = await run_manage("show", "log", url)
    assert (code, out) == (0, "key: router\nlevel: info\nformat: json\n")
    code, out, _ = await run_manage("show", "subscription", "box/sub", url, "--json")
    assert json.loads(out)["name"] == "box/sub"
    code, out, _ = await run_manage("show", "config", url)
    assert "limits.drain_limit_s: 10\n" in out
    assert "users: no\n" in out
    assert (await run_manage("list", "config", url))[1] == out  # 60 columns are no table


async def test_control_characters_in_clients_names_are_escaped(alpha: RouterProcess) -> None:
    box = await RawClient.connect(alpha.port, "box\x1b[2J\r[/b]")
    await box.subscriber("orders[/x]")
    for words in (("list", "connection"), ("show", "connection", box.address), ("list", "subscription")):
        code, out, err = await run_manage(*words, f"--url={alpha.http}")
        assert (code, err, "\x1b" in out, "\r" in out) == (0, "", False, False), words
        assert '"box\\u001b[2J\\r[/b]' in out
    assert "orders[/x]" in out


async def test_a_deletion_is_confirmed_and_says_what_happens_to_deliveries(alpha: RouterProcess) -> None:
    box = await RawClient.connect(alpha.port, "box")
    subscriber = await box.subscriber("orders")
    url = f"--url={alpha.http}"
    code, out, err = await run_manage("delete", "subscription", "box/sub", url, text="n\n")
    assert (code, out) == (1, "")
    assert_golden(GOLDEN / "delete_no.txt", err.replace(box.address, "PEER"))
    code, out, err = await run_manage("delete", "subscription", "box/sub", url)
    assert (code, out) == (2, "")
    assert "nobody said yes" in err
    code, out, err = await run_manage("delete", "subscription", "box/sub", url, text="y\n")
    assert (code, out) == (0, "deleted: box/sub\n")
    assert (await box.detached(subscriber.link)).error is not None
    await box.subscriber("orders", "again")
    code, out, _ = await run_manage("delete", "subscription", "box/again", url, "--yes", "--json")
    assert (code, json.loads(out)) == (0, {"deleted": "box/again"})


async def test_operations_take_their_arguments_as_words(alpha: RouterProcess) -> None:
    url = f"--url={alpha.http}"
    code, out, err = await run_manage("call", "router", "alpha", "trace", "on=true", "topics=orders,bills", url)
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "on: yes"
    assert "topics: bills, orders" in out
    code, out, _ = await run_manage("call", "router", "alpha", "trace", "on=no", url, "--json")
    assert json.loads(out)["on"] is False
    code, out, _ = await run_manage("set", "log", "router", "level=debug", url)
    assert (code, out) == (0, "key: router\nlevel: debug\nformat: json\n")


async def test_a_test_message_can_be_published_to_a_topic_that_nobody_uses(alpha: RouterProcess) -> None:
    words = ("call", "topic", "nobody/here", "publish", "body=hello", f"--url={alpha.http}", "--json")
    code, out, err = await run_manage(*words)
    assert (code, err) == (0, "")
    assert json.loads(out)["outcome"] == "released"  # nobody gets it


async def test_bad_input_is_refused_with_what_is_known(alpha: RouterProcess) -> None:
    url = f"--url={alpha.http}"
    for name, arguments in {
        "no_type": ("list", "exchange"),
        "no_command": ("stop",),
        "set_nothing": ("set", "topic", "orders", "name=x", url),
        "set_unknown": ("set", "log", "router", "levels=x", url),
        "set_no_value": ("set", "log", "router", "level", url),
        "set_bad_level": ("set", "log", "router", "level=loud", url),
        "set_bad_number": ("set", "link", "r2", "cost=cheap", url),
        "set_both": ("set", "log", "router", "level=info", "--both", url),
        "delete_router": ("delete", "router", "alpha", url),
        "call_unknown": ("call", "router", "alpha", "stop", url),
        "call_bad_word": ("call", "router", "alpha", "trace", "on=perhaps", url),
        "call_missing": ("call", "router", "alpha", "trace", url),
        "not_there": ("show", "subscription", "nobody/sub", url),
        "no_file": ("reload", url),
        "show_no_name": ("show", "subscription", url),
        "show_empty_name": ("show", "topic", "", url),
        "no_text": ("show", "topic", os.fsdecode(b"\xff"), url),
        "no_text_user": ("list", "topic", url, "--user", os.fsdecode(b"\xff")),
    }.items():
        await assert_refused(name, *arguments, hide=alpha.http, ONCEWIRE_PASSWORD="secret")
    await assert_refused("no_router", "list", "topic", "--url=http://127.0.0.1:1")
    await assert_refused("no_address", "list", "topic", "--url=127.0.0.1:8672")


async def test_a_login_is_given_by_name_and_its_password_by_the_environment() -> None:
    flags = ("--users=ann:secret", "--roles=ann=admin", "--http-loopback-role=none", "--http-anonymous-role=none")
    async with running_router("--standalone", "--id=alpha", *flags) as router:
        url = f"--url={router.http}"
        await assert_refused("login_needed", "list", "topic", url, hide=router.http)
        await assert_refused("login_wrong", "list", "topic", url, "--user=ann", hide=router.http, ONCEWIRE_PASSWORD="x")
        twice = router.http.replace("//", "//ann:secret@")
        await assert_refused("login_twice", "list", "topic", f"--url={twice}", "--user=ann", ONCEWIRE_PASSWORD="secret")
        await assert_refused("login_silent", "list", "topic", url, "--user=ann", hide=router.http)
        code, out, err = await run_manage("show", "log", url, "--user=ann", ONCEWIRE_PASSWORD="secret")
        assert (code, err) == (0, "")
        assert out.startswith("key: router\n")


async def test_the_settings_are_loaded_again(tmp_path: Path) -> None:
    file = tmp_path / "router.toml"
    text = 'standalone = true\nid = "alpha"\n[log]\nformat = "json"\n'
    file.write_text(text)
    async with running_router(f"--config={file}") as router:
        url = f"--url={router.http}"
        assert await run_manage("reload", url) == (0, "nothing has changed\n", "")
        file.write_text(text + 'level = "debug"\n[limits]\nwindow = 7\n')
        code, out, _ = await run_manage("reload", url)
        assert out == "changed: log.level: info -> debug\nneeds a restart: limits.window: 1024 -> 7\n"
        file.write_text("[")
        code, out, err = await run_manage("reload", url)
        assert (code, out) == (2, "")
        assert "Nothing has changed" in err


async def test_a_link_costs_the_same_in_both_directions_if_that_is_asked() -> None:
    async with LocalNetwork(2) as network:
        url = f"--url={network.routers['r1'].http}"
        code, out, err = await run_manage("set", "link", "r2", "cost=12", "--both", url)
        assert (code, out, err) == (0, "r1 to r2: 12\nr2 to r1: 12\n", "")
        code, out, _ = await run_manage("set", "link", "r2", "cost=null", url, "--json")
        assert json.loads(out)["cost"] == 1


async def test_a_neighbour_that_refuses_leaves_one_direction_changed_and_the_error_says_so() -> None:
    settings = {"users": "ann:secret", "roles": "ann=operator", "http.loopback_role": "viewer"}
    async with LocalNetwork(2, settings=settings) as network:
        url = network.routers["r1"].http.replace("//", "//ann:secret@")
        reported = await run_manage("set", "link", "r2", "cost=12", "--both", f"--url={url}")
        assert reported[:2] == (2, "")
        assert reported[2].startswith("error: only the direction from r1 to r2 has changed\nwhy: at r2: ")
