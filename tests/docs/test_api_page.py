"""docs/reference/api.md: what an application sees of the client, in an editor and on the page, is the same."""

from __future__ import annotations

import importlib
import inspect
import re

import pytest

from tests.docs.code_blocks import ROOT

PAGE = (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
LISTED = {
    name: {each.strip() for each in members.split(",")}
    for name, members in re.findall(
        r"^::: (\S+)\n    options:\n(?:      inherited_members: true\n)?      members: \[(.*)\]", PAGE, re.MULTILINE
    )
}


def found(name: str) -> object:
    module, _, attribute = name.rpartition(".")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return getattr(importlib.import_module(module), attribute)


@pytest.mark.parametrize("name", LISTED)
def test_each_member_on_the_page_is_there_and_says_what_it_does(name: str) -> None:
    thing = found(name)
    sources = [thing] if inspect.ismodule(thing) else [each for each in inspect.getmro(thing) if each is not object]  # type: ignore[arg-type]
    text = "".join(map(inspect.getsource, sources))
    for each in LISTED[name]:
        made = inspect.getattr_static(thing, each, None)
        if inspect.isfunction(made) or isinstance(made, property):
            assert inspect.getdoc(made), each
        else:  # an attribute of data
            assert re.search(rf"^\s+{each}: ", text, re.MULTILINE) or f"self.{each} = " in text, each


@pytest.mark.parametrize(
    "name", sorted(name for name in LISTED if name.startswith("oncewire.client.") and inspect.isclass(found(name)))
)
def test_nothing_else_is_completed_in_an_editor(name: str) -> None:
    members = {each for each in dir(found(name)) if not each.startswith("_")}
    if found(name).__name__ == "SqliteJournal":  # type: ignore[attr-defined]  # the rest is what a Journal of your own has
        members -= {each for each in dir(found("oncewire.client.Journal")) if not each.startswith("_")}
    assert members <= LISTED[name]
