"""The pages of Spark name what exists, the reference is the code's, and the failure table names its tests."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

from bridges.node import metrics
from bridges.node.settings import NODE, SUBSCRIPTION
from bridges.spark import reference
from bridges.spark.option_table import OPTIONS
from bridges.spark.schema import columns
from oncewire.client.isolation import Isolation
from tests.docs.guarantee_tables import section, table

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("spark.md", "spark-reference.md", "spark-cluster.md", "spark-kafka.md", "tutorials/spark.md")
PAGE = "\n".join((ROOT / "docs" / name).read_text(encoding="utf-8") for name in PAGES)
TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(test_\w+))?`")
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
SHELL = "\n".join(re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)).replace("\\\n", " ")
SPARKS_OWN = {"checkpointLocation"}
MODULES = re.compile(r"`((?:bridges|oncewire)(?:\.[a-z_]+)+)((?:\.\w+)?)(?:\(.*?\))?`")
HEAD = ("Fault", "What happens", "Why it counts once", "Shown by")


def test_the_reference_of_options_is_what_the_code_makes() -> None:
    assert reference.with_reference(PAGE) == PAGE, "run `python -m bridges.spark.reference`"


def test_the_table_of_kafkas_options_is_what_the_code_makes() -> None:
    assert reference.with_kafka(PAGE) == PAGE, "run `python -m bridges.spark.reference`"


def test_the_reference_has_every_option_and_what_may_be_given() -> None:
    made = reference.options_reference()
    for option in OPTIONS:
        assert f"| `{option.key}`" in made
        assert option.reason.replace("|", "\\|") in made


def test_the_reference_has_every_setting_of_a_bridge_node() -> None:
    made = reference.settings_reference()
    for setting in (*NODE.values(), *SUBSCRIPTION.values()):
        assert f"| `{setting.key}` |" in made or setting.table == "defaults"
        assert setting.reason.replace("|", "\\|") in made


@pytest.mark.parametrize("page", ["none", "<!-- begin options -->\n", "<!-- end options -->\n<!-- begin options -->\n"])
def test_a_page_without_the_marks_is_not_rewritten(page: str) -> None:
    with pytest.raises(ValueError, match="the page needs the marks"):
        reference.with_reference(page)


def test_the_columns_are_those_of_the_schema() -> None:
    reported = [(name.strip("`"), kind.strip("`")) for name, kind, _ in table(section(PAGE, "Rows"))[1:]]
    assert reported == list(columns(include_headers=True, include_metadata=True))


def test_every_failure_names_its_test_or_says_that_it_has_none() -> None:
    head, *rows = table(section(PAGE, "Failures"))
    assert head == HEAD
    assert len(rows) > 25
    for fault, *_, shown in rows:
        assert TEST.search(shown) or shown.startswith("not shown"), fault
    faults = [fault for fault, *_ in rows]
    assert len(set(faults)) == len(faults)


def test_every_guarantee_is_an_allowed_one_and_none_is_left_out() -> None:
    reported = [row[0].strip("`") for row in table(section(PAGE, "Guarantees to choose from"))[1:]]
    (option,) = [option for option in OPTIONS if option.key == "deliveryGuarantee"]
    assert reported == re.findall(r"`([a-z-]+)`", option.allowed)


def test_programs_are_python_and_their_options_exist() -> None:
    known = {option.key for option in OPTIONS} | SPARKS_OWN
    assert len(PROGRAMS) == 4
    for program in PROGRAMS:
        ast.parse(program)
        given = set(re.findall(r"\.option\(\s*\"([^\"]+)\"", program))
        given |= set(re.findall(r"\"(bridge[\w.]*)\":", program))
        assert given - known == set()


def test_every_setting_of_the_node_on_the_page_exists() -> None:
    (made,) = re.findall(r"print\(f'''\n(.*?)'''\)", PAGE, re.DOTALL)
    config = tomllib.loads(made.replace("{json.dumps(routers)}", '["amqp://127.0.0.1"]'))
    listed = config.pop("subscription")
    assert set(config) <= set(NODE)
    assert {key for each in listed for key in each} <= set(SUBSCRIPTION)
    named = set(re.findall(r"`((?:listen|outbox|http)\.[a-z_]+|[a-z]+_[a-z_]+)(?: = [^`]*)?`", PAGE))
    settings = {name for name in named if not name.startswith("oncewire_")}
    others = {name for name, _ in columns(include_headers=True, include_metadata=True)}
    others |= {"session_builder", "run_forever", "publish_batches", *(level.value for level in Isolation)}
    assert settings - others <= {*NODE, *SUBSCRIPTION}


def test_every_metric_on_the_page_is_the_nodes() -> None:
    code = Path(metrics.__file__).read_text(encoding="utf-8")
    served = set(re.findall(r'"(oncewire_node_[a-z_]+)"', code))
    named = {name.removesuffix("_total") for name in re.findall(r"`(oncewire_node_[a-z_]+)`", PAGE)}
    assert len(named) >= 6
    assert named <= served


def test_every_module_on_the_page_exists() -> None:
    named = MODULES.findall(PAGE)
    assert named
    for dotted, attribute in named:
        path = ROOT / dotted.replace(".", "/")
        parent, name = path.parent.with_suffix(".py"), path.name
        if not attribute and not path.is_dir() and not path.with_suffix(".py").is_file():
            assert parent.is_file(), dotted
            assert f"def {name}(" in parent.read_text(encoding="utf-8"), dotted


def test_the_programs_that_are_started_are_saved_before() -> None:
    saved = re.findall(r"[Ss]ave this as `(\w+\.py)`", PAGE)
    started = set(re.findall(r"^python (\w+\.py)", SHELL, re.MULTILINE))
    assert started == set(saved)
    assert len(saved) == len(PROGRAMS)
