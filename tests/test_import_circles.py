"""No file imports, directly or through others, a file that imports it.

Imports under TYPE_CHECKING and inside functions count: they tie a reader as much, and compilers read them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.sources import statements

PROJECT = Path(__file__).resolve().parents[1]
WITHOUT_CIRCLES = ("bridges", "chaos", "delivery_records", "oncewire", "pyspark_oncewire", "router", "topology")


def imported_files(path: str, sources: Mapping[str, str]) -> Iterator[str]:
    """Yields the files among `sources` that a file imports, wherever in it."""
    package = path.removesuffix(".py").split("/")[:-1]
    for node in statements(ast.parse(sources[path]).body):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            names = [f"{module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            # A module, or a name in one.
            stems = [name.replace(".", "/"), name.rpartition(".")[0].replace(".", "/")]
            files = [f"{stem}{end}" for stem in stems for end in (".py", "/__init__.py")]
            found = next((file for file in files if file in sources), None)
            if found is not None and found != path:
                yield found


def circle(sources: Mapping[str, str]) -> list[str]:
    """Returns files that import each other in a circle; empty if there are none."""
    imports = {path: set(imported_files(path, sources)) for path in sources}
    while free := [path for path, needed in imports.items() if not needed]:
        for path in free:
            del imports[path]
        for needed in imports.values():
            needed.difference_update(free)
    # Each file that is left imports one that is left: whoever follows that comes to a file for the second time.
    walk: list[str] = []
    path = min(imports, default="")
    while path and path not in walk:
        walk.append(path)
        path = min(imports[path])
    return walk[walk.index(path) :] if path else []


@pytest.mark.parametrize("folder", WITHOUT_CIRCLES)
def test_no_file_imports_itself_through_others(folder: str) -> None:
    files = sorted((PROJECT / folder).rglob("*.py"))
    assert files
    assert circle({file.relative_to(PROJECT).as_posix(): file.read_text("utf-8") for file in files}) == []


@pytest.mark.parametrize(
    "statement",
    [
        "from p.a import A",
        "import p.a",
        "from . import a",
        "from p import a",
        "if TYPE_CHECKING:\n    from p.a import A",
        "def f():\n    from p.a import A",
    ],
)
def test_a_planted_circle_is_found(statement: str) -> None:
    sources = {"p/a.py": "from p.b import B", "p/b.py": "import p.c", "p/c.py": statement, "p/d.py": "import p.a"}
    assert circle(sources) == ["p/a.py", "p/b.py", "p/c.py"]


def test_imports_that_point_one_way_are_no_circle() -> None:
    assert circle({"p/a.py": "import p.b, p.c", "p/b.py": "import p.c", "p/c.py": "import json"}) == []
