"""JSON Web Tokens at the HTTP door of a real node process: whose are taken, keys that change, what is refused."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from bridges.node.settings_loading import load
from oncewire.cli.errors import CliError
from oncewire.cli.users_file import write
from tests.client.shell_helpers import LONG
from tests.node.node_process import NodeProcess
from tests.node.test_door_tls import PASSWORD, get, line, login, node_at
from tests.support.tokens import AUDIENCE, ISSUER, Issuer
from tests.support.waiting import eventually

OF_ISSUER = {"jwt__issuer": ISSUER, "jwt__audience": AUDIENCE}
STATE = "/api/v1/state"


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


def status(process: NodeProcess, authorization: str = "", path: str = STATE) -> int:
    return get(process, path, None, **({"Authorization": authorization} if authorization else {}))[0]


def refused_logins(process: NodeProcess, right: str) -> float:
    _, text = get(process, "/metrics", Authorization=right)
    (found,) = [
        each for each in text.splitlines() if each.startswith('oncewire_node_logins_failed_total{listener="http"')
    ]
    return float(found.split()[-1])


def test_operators_log_in_with_a_token_of_the_issuer_and_no_other(
    issuer: Issuer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    keys = issuer.write(tmp_path / "keys.json")
    other = Issuer()
    wrong = [
        other.token("ann"),
        issuer.token("ann", -60),
        issuer.token("ann", aud="another"),
        issuer.token("ann", iss="https://another.example"),
    ]
    with node_at(tmp_path, jwt__jwks_file=keys, **OF_ISSUER) as process:
        right = f"Bearer {issuer.token('ann')}"
        assert status(process, path="/healthz") == 200
        assert status(process, right) == 200
        assert status(process, right, "/metrics") == 200
        code, reported = get(process, STATE)
        assert (code, reported["error"]) == (401, "this needs a login")
        assert reported["fix"] == "log in with a token of jwt.issuer as HTTP Bearer"
        for token in wrong:
            assert status(process, f"Bearer {token}") == 401
        assert status(process, login("ann", PASSWORD)) == 401, "there is no file of users"
        again = status(process, right)
        assert again == 429, "five wrong logins of an address are enough for a minute, as with passwords"
    log = capfd.readouterr().err
    for why in ("signature is wrong", "has expired", "another audience", "another issuer", "a login that is no token"):
        assert why in log
    assert not any(token in log for token in wrong)


def test_wrong_tokens_are_counted(issuer: Issuer, tmp_path: Path) -> None:
    with node_at(tmp_path, jwt__jwks_file=issuer.write(tmp_path / "keys.json"), **OF_ISSUER) as process:
        right = f"Bearer {issuer.token('ann')}"
        assert refused_logins(process, right) == 0
        assert status(process, "Bearer no.token") == 401
        assert refused_logins(process, right) == 1


def test_users_of_a_file_and_tokens_stand_beside_each_other(issuer: Issuer, tmp_path: Path) -> None:
    users = tmp_path / "users"
    write(str(users), [line("bob")])
    keys = issuer.write(tmp_path / "keys.json")
    with node_at(tmp_path, users_file=users, jwt__jwks_file=keys, **OF_ISSUER) as process:
        assert status(process, f"Bearer {issuer.token('ann')}") == 200
        assert status(process, login("bob", PASSWORD)) == 200
        with pytest.raises(HTTPError, match="401") as caught:
            urlopen(f"{process.announced['http']}{STATE}", timeout=LONG)
        with caught.value:
            challenges = caught.value.headers.get_all("WWW-Authenticate", [])
        assert [each.split()[0] for each in challenges] == ["Basic", "Bearer"]


def test_only_listed_users_are_taken_and_no_name_that_would_become_one(
    issuer: Issuer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    keys = issuer.write(tmp_path / "keys.json")
    with node_at(tmp_path, jwt__jwks_file=keys, jwt__users=["ann"], **OF_ISSUER) as process:
        assert status(process, f"Bearer {issuer.token('ann')}") == 200
        assert status(process, f"Bearer {issuer.token('bob')}") == 401
        hyphen = issuer.token("a\u00adnn")
        assert status(process, f"Bearer {hyphen}") == 401, "SASLprep would take the soft hyphen out"
    assert "user 'bob', who is not in jwt.users" in capfd.readouterr().err


def test_a_replaced_file_of_keys_counts_from_the_next_login_on_and_a_broken_one_does_not(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    issuer = Issuer()
    keys = issuer.write(tmp_path / "keys.json")
    with node_at(tmp_path, jwt__jwks_file=keys, **OF_ISSUER) as process:
        before = f"Bearer {issuer.token('ann')}"
        assert status(process, before) == 200
        issuer.rotate()
        issuer.write(keys)
        after = f"Bearer {issuer.token('ann')}"
        assert status(process, after) == 200
        assert status(process, before) == 401
        keys.write_text("{}")
        assert status(process, after) == 200
    assert "the keys of tokens cannot be used" in capfd.readouterr().err


async def test_keys_come_from_the_issuer_and_without_them_nobody_is_admitted(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    issuer = Issuer()
    async with issuer.serving():
        issuer.status = 500
        with node_at(tmp_path, jwt__jwks_url=issuer.url, jwt__refetch_s=1, **OF_ISSUER) as process:
            bearer = f"Bearer {issuer.token('ann')}"
            assert await asyncio.to_thread(status, process, bearer) == 503
            issuer.status = 200

            async def is_taken() -> bool:
                return await asyncio.to_thread(status, process, bearer) == 200

            await eventually(is_taken, "the keys are fetched again")
            assert issuer.requests == 2, "not before jwt.refetch_s is over"
    assert "cannot be fetched" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("settings", "what", "why"),
    [
        ({"jwks_file": "k"}, "jwt.issuer in", "tokens of all others"),
        ({"jwks_file": "k", "issuer": ISSUER}, "jwt.audience in", "tokens of all others"),
        ({"jwks_file": "k", "jwks_url": "https://a/k"}, "jwt.jwks_file in", "jwt.jwks_url is set, too"),
        ({"jwks_url": "http://issuer.example/k"}, "jwt.jwks_url = ", "allowed: URL https"),
        ({"jwks_url": "https://ann:secret@issuer.example/k"}, "jwt.jwks_url = ", "allowed: URL https"),
        ({"algorithms": ["HS256"]}, "jwt.algorithms = ", ""),
        ({"users": "ann"}, "jwt.users = ", ""),
        ({"jwks_url": "https://a/k", "issuer": "i", "audience": "a", "http": "0.0.0.0"}, "jwt.jwks_url in", "in clear"),
        ({"jwks_file": "k", "issuer": "i", "audience": "a", "http": ""}, "jwt.jwks_file in", "nobody logs in"),
    ],
)
def test_settings_that_would_let_others_in_are_refused(
    settings: dict[str, Any], what: str, why: str, tmp_path: Path
) -> None:
    host = settings.pop("http", "127.0.0.1")
    lines = [f"jwt.{key} = {json.dumps(value)}" for key, value in settings.items()]
    file = tmp_path / "node.toml"
    file.write_text("\n".join(['folder = "/tmp/n"', 'routers = ["amqp://127.0.0.1"]', f'http.host = "{host}"', *lines]))
    with pytest.raises(CliError) as refused:
        load(str(file))
    assert what in refused.value.what
    assert why in refused.value.why


def test_the_settings_of_the_page_are_accepted(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "spark-cluster.md").read_text()
    (block,) = [each for each in re.findall(r"```toml\n(.*?)```", page, re.DOTALL) if "jwks_url" in each]
    file = tmp_path / "node.toml"
    file.write_text(f'folder = "/tmp/n"\nrouters = ["amqp://127.0.0.1"]\n{block}')
    tokens = load(str(file)).tokens
    assert tokens is not None
    assert (tokens.jwt_audience, tokens.users) == ("oncewire-nodes", ("prometheus", "ann"))
