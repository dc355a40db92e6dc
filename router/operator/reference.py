"""Writes the tables of three pages from the schema: `python -m router.operator.reference` in the project's folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from oncewire.settings.reference import settings_table, table
from oncewire.settings.reference import written as with_parts
from router.operator.arguments import allowed
from router.operator.schema import CONFIG, TYPES
from router.settings.config_loading import SETTINGS
from topology.inspector.rows_core import COLLECTIONS
from topology.inspector.schema.catalogue import SHOWN, entity_of
from topology.inspector.schema.model import Attribute, EntityType, Operation

PAGE = Path("docs/management.md")
"""From the project's folder: this module may be an installed one, far from the pages."""
SETTINGS_PAGE = Path("docs/settings.md")
INSPECTOR_PAGE = Path("docs/inspector-api.md")


def written(page: Path, text: str) -> str:
    """A page with its marked parts written anew; everything between them is written by hand."""
    if page == INSPECTOR_PAGE:
        return with_parts(text, {"tables": "".join(_tables()), "delivery": _attributes_of(SHOWN["delivery"])})
    if page == SETTINGS_PAGE:
        return with_parts(text, {"settings": settings_table(SETTINGS.values())})
    return with_parts(text, {"entities": "".join(_entities())})


def _tables() -> Iterator[str]:
    """The inspector's tables: those of managed entities have their attributes on the page of these."""
    entities = [entity_of(each) for each in COLLECTIONS]
    links = {each.name: f"[{each.name}](management.md#{each.name})" if each.naming else each.name for each in entities}
    rows = ((f"`{each.table}`", links[each.name], each.meaning) for each in entities)
    yield table(("table", "a row", "meaning"), rows)
    for entity in entities:
        if not entity.naming:
            yield f"\nAttributes of **{entity.table}**:\n\n" + _attributes_of(entity)


def _attributes_of(entity: EntityType) -> str:
    return table(("attribute", "type", "meaning"), map(_shown, entity.attributes))


def _shown(attribute: Attribute) -> Sequence[str]:
    name, kind, _, meaning = _attribute(attribute)
    return name, kind, meaning


def _entities() -> Iterator[str]:
    for entity in TYPES.values():
        yield _entity(entity)
    yield "\n"


def _entity(entity: EntityType) -> str:
    lines = [f"\n### {entity.name}\n", f"\n{entity.meaning} Named by {entity.naming}.\n"]
    if entity is CONFIG:
        hidden = "of secret ones only whether they are set, of URLs no user and password"
        return "".join([*lines, f"\nIts attributes are the [settings](settings.md); {hidden}.\n"])
    lines += ["\n", table(("attribute", "type", "changed by", "meaning"), map(_attribute, entity.attributes))]
    operations = [*entity.operations, *([entity.delete] if entity.delete is not None else [])]
    if operations:
        lines += ["\n", table(("operation", "role", "does", "deliveries"), map(_operation, operations))]
    for each in operations:
        lines += _arguments(each)
    return "".join(lines)


def _attribute(attribute: Attribute) -> Sequence[str]:
    who = "" if attribute.settable is None else attribute.settable.word
    choices = ", ".join(f"`{each}`" for each in attribute.choices)
    unit = "" if attribute.unit is None else f", {attribute.unit.value}"
    kind = f"one of {choices}" if choices else f"{attribute.type.value}{unit}"
    parts = "".join(f" `{each.name}`: {each.meaning}" for each in attribute.parts)
    return f"`{attribute.name}`", kind, who, attribute.meaning + parts


def _operation(operation: Operation) -> Sequence[str]:
    return f"`{operation.name}`", operation.role.word, operation.meaning, operation.deliveries


def _arguments(operation: Operation) -> Iterator[str]:
    if operation.arguments:
        yield f"\nArguments of `{operation.name}`:\n\n"
    for each in operation.arguments:
        need = "needed; " if each.is_required else ""
        yield f"- `{each.name}` ({need}{allowed(each)}): {each.meaning}\n"


if __name__ == "__main__":
    for page in (PAGE, SETTINGS_PAGE, INSPECTOR_PAGE):
        page.write_text(written(page, page.read_text(encoding="utf-8")), encoding="utf-8")
