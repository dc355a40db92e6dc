"""The command `oncewire`: lazy loading, and errors that say what, why and what to do."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import click
import pytest

from oncewire.cli import python_check
from oncewire.cli.commands import COMMAND_GROUP, SERVER, CommandGroup, installed_commands
from oncewire.cli.errors import CliError
from oncewire.cli.nouns import Noun
from oncewire.cli.program import name_as_typed
from oncewire.cli.run import run
from tests.support.golden import assert_golden

PROJECT = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).parent / "golden"


def group_of(**sources: str) -> CommandGroup:
    entries = {name: EntryPoint(name, value, COMMAND_GROUP) for name, value in sources.items()}
    return CommandGroup("oncewire", help="A group for tests.", sources=lambda: entries)


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=60, check=False)


def test_version_prints_what_is_installed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["version"]) == 0
    assert capsys.readouterr().out.startswith("oncewire 0.")


def test_version_as_json_is_one_line_that_names_the_packages_it_stands_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["version", "--json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1
    versions = json.loads(lines[0])
    assert versions["python"].split(".")[:2] == [str(part) for part in sys.version_info[:2]]
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {each.partition(">=")[0] for each in project["dependencies"]} <= set(versions["packages"])


def test_every_declared_command_is_installed_and_loads() -> None:
    declared = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]
    installed = installed_commands()
    assert {name: entry.value for name, entry in installed.items()} == declared[COMMAND_GROUP]
    for name, entry in installed.items():
        command = entry.load()
        assert isinstance(command, click.Command), name
        assert command.help, f"`oncewire {name} --help` says nothing"


def test_help_lists_every_installed_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"  {name} " in text for name in installed_commands())
    assert "cannot be loaded" not in text


def test_without_arguments_the_help_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    assert capsys.readouterr().out.startswith("Usage: oncewire")


def test_python_runs_the_command_as_a_module() -> None:
    done = python("-m", "oncewire", "--help")
    assert (done.returncode, done.stdout[:21]) == (0, "Usage: oncewire [OPTI"), done.stderr


def test_a_group_without_a_command_prints_its_help_as_oncewire_does(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("context", "manage"):
        assert run([name]) == 0
        printed = capsys.readouterr()
        assert printed.out.startswith(f"Usage: oncewire {name} [OPTIONS] COMMAND [ARGS]...\n")
        assert printed.err == ""


def test_a_program_that_path_does_not_have_is_named_as_it_was_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("my venv", "other"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "oncewire").touch(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "other"))
    monkeypatch.setattr(sys, "argv", ["my venv/oncewire", "local"])
    assert name_as_typed() == "'my venv/oncewire'"
    monkeypatch.setenv("PATH", str(tmp_path / "my venv"))
    assert name_as_typed() == "oncewire"
    monkeypatch.setattr(sys, "argv", ["-c", "local"])
    assert name_as_typed() == "oncewire"


@pytest.mark.cold
def test_only_the_command_that_runs_is_imported() -> None:
    code = (
        "import sys\n"
        "from oncewire.cli.run import run\n"
        "assert run(['version']) == 0\n"
        "heavy = {'aiohttp', 'uvloop', 'router', 'topology', 'chaos', 'oncewire.wire', 'oncewire.client'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    done = python("-c", code)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_command_returns_its_exit_code() -> None:
    @click.command()
    def verdict() -> int:
        return 1

    assert run(["verdict"], click.Group(commands={"verdict": verdict})) == 1


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("unknown-command", ["pubb", "orders"]),
        ("unknown-option", ["version", "--jsn"]),
        ("unknown-option-of-oncewire", ["--verbose"]),
        ("command-module-missing", ["lost", "--option", "argument"]),
        ("command-name-missing", ["nameless"]),
        ("command-of-another-kind", ["number"]),
    ],
)
def test_misuse_says_what_why_and_what_to_do(
    name: str, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    group = group_of(
        version="oncewire.cli.version:version",
        lost="a_package_that_is_not_there.cli:lost",
        nameless="oncewire.cli.errors:nameless",
        number="oncewire.cli.errors:EXIT_MISUSE",
    )
    assert run(arguments, group) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert_golden(GOLDEN / f"{name}.txt", printed.err)


def test_a_command_that_cannot_be_loaded_does_not_spoil_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"], group_of(lost="nowhere.cli:lost", version="oncewire.cli.version:version")) == 0
    text = capsys.readouterr().out
    assert "(cannot be loaded: loading nowhere.cli:lost failed" in text
    assert "Print the version" in text


def test_a_command_that_the_client_alone_has_not_is_met_with_the_extra_that_brings_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    client = group_of(version="oncewire.cli.version:version")
    for name, extra in (("router", "router"), ("queue", "edge"), ("demo", "chaos")):
        assert run([name, "--anything"], client) == 2
        assert capsys.readouterr().err.splitlines() == [
            f"error: there is no command `{name}` here",
            f"why: the client of Oncewire is installed; this command is in the package {SERVER}",
            f'what to do: pip install "oncewire[{extra}]"',
        ]


def test_commands_of_another_release_than_the_clients_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "oncewire_server-0.0.1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {SERVER}\nVersion: 0.0.1\n")
    (folder / "entry_points.txt").write_text(f"[{COMMAND_GROUP}]\nolder = oncewire.cli.version:version\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert run(["older"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[1].startswith(f"why: {SERVER} 0.0.1 and oncewire 0.")
    assert lines[2] == 'what to do: pip install --upgrade "oncewire[router]"'


def test_two_packages_with_one_command_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [EntryPoint("pub", value, COMMAND_GROUP) for value in ("one:pub", "two:pub")]
    monkeypatch.setattr("oncewire.cli.commands.entry_points", lambda group: entries)
    with pytest.raises(CliError, match="two commands named `pub`"):
        installed_commands()


def test_ctrl_c_ends_a_command_with_130_and_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    @click.command()
    def wait() -> None:
        signal.raise_signal(signal.SIGINT)

    assert run(["wait"], click.Group(commands={"wait": wait})) == 130
    assert capsys.readouterr().err.strip() == ""


def test_an_old_python_is_reported_what_why_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        python_check.require_new_python((3, 10))
    assert end.value.code == 2
    assert_golden(GOLDEN / "python-too-old.txt", capsys.readouterr().err)


def test_this_python_is_not_too_old() -> None:
    assert python_check.complaint(tuple(sys.version_info[:2])) is None
    assert python_check.complaint((3, 11)) is None
    assert python_check.complaint((4, 0)) is None


@pytest.mark.cold
def test_an_old_python_can_read_everything_up_to_the_check() -> None:
    listing = "import sys, oncewire.cli.main; print(*(name for name in sys.modules if name.startswith('oncewire')))"
    loaded = python("-c", listing).stdout.split()
    assert sorted(loaded) == ["oncewire", "oncewire.cli", "oncewire.cli.main", "oncewire.cli.python_check"]
    for name in loaded:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        ast.parse(Path(spec.origin).read_text(encoding="utf-8"), feature_version=(3, 7))


def test_the_console_script_runs_and_ends_with_the_right_code(tmp_path: Path) -> None:
    script = Path(sys.executable).parent / "oncewire"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    good = subprocess.run([script, "version"], capture_output=True, cwd=tmp_path, env=environment, check=False)
    bad = subprocess.run([script, "vershun"], capture_output=True, cwd=tmp_path, env=environment, check=False)
    assert (good.returncode, bad.returncode) == (0, 2)
    assert b"Traceback" not in bad.stderr


def test_a_command_that_is_spelled_wrong_is_met_with_the_one_that_is_meant(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspct"]) == 2
    assert "No such command 'inspct'. Did you mean 'inspect'?" in capsys.readouterr().err
    assert run(["manage", "shw"]) == 2
    assert "Did you mean 'show'?" in capsys.readouterr().err


def test_the_version_is_an_option_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("oncewire 0.")


@pytest.mark.parametrize(
    ("word", "meant"), [("link", "links"), ("links", "links"), ("deliveries", "delivery"), ("delivery", "delivery")]
)
def test_singular_and_plural_mean_the_same(word: str, meant: str) -> None:
    assert Noun(["overview", "links", "delivery"]).convert(word, None, None) == meant


def test_a_noun_that_is_spelled_wrong_is_met_with_the_one_that_is_meant() -> None:
    with pytest.raises(click.BadParameter, match="Did you mean 'links'"):
        Noun(["overview", "links", "delivery"]).convert("lnks", None, None)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script_that_completes(shell: str) -> None:
    done = completed({"_ONCEWIRE_COMPLETE": f"{shell}_source"})
    assert "_ONCEWIRE_COMPLETE" in done
    words = {"COMP_WORDS": "oncewire ins", "COMP_CWORD": "ins" if shell == "fish" else "1"}
    assert "inspect" in completed({"_ONCEWIRE_COMPLETE": f"{shell}_complete", **words})


def completed(environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", "from oncewire.cli.main import main; main()"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **environment},
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout
