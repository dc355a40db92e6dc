"""The types that management offers: those of the one schema (topology/inspector/schema), and the router's settings."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from dataclasses import fields

from oncewire.settings.schema import Setting
from router.operator.reload import values_of
from router.settings.config import RouterConfig
from router.settings.config_loading import SETTINGS
from topology.inspector.schema.catalogue import MANAGED
from topology.inspector.schema.model import KEY, Attribute, EntityType, Operation, Role, Type

AMQP_PREFIX = "oncewire."
"""In front of a type's name at `$management`; without it the name is understood, too."""

POLICY = ("access_rules", "slow_rules", "topic_rules", "quota_rules", "groups")
"""Settings that can be set without the file: until the process stops, or its settings are loaded again."""
_OF_FIELD = {"int": Type.INTEGER, "float": Type.NUMBER, "bool": Type.BOOLEAN, "str": Type.TEXT}


def _of_setting(name: str, written: str) -> Attribute:
    """A setting as an attribute; of a secret one only whether it is set."""
    setting = SETTINGS[name]
    if setting.secret:
        return Attribute(setting.key, Type.BOOLEAN, f"Whether it is set; never shown. {setting.reason}")
    kind = Type.MAP if setting.is_table else _OF_FIELD.get(written, Type.LIST)
    return Attribute(setting.key, kind, setting.reason, settable=Role.ADMIN if name in POLICY else None)


CONFIG = EntityType(
    "config",
    "The settings in force at the router that is asked. They are changed in its file, then loaded (router, reload). "
    "Rules and groups can also be set here; that applies until the process stops or the settings are loaded again, and "
    "the file stays as it is.",
    "router",
    (KEY, *(_of_setting(each.name, str(each.type)) for each in fields(RouterConfig) if each.name in SETTINGS)),
)

TYPES: Mapping[str, EntityType] = ChainMap({CONFIG.name: CONFIG}, MANAGED)
"""Every type that can be asked for by its name."""


def as_data() -> dict[str, object]:
    """The schema as JSON-able data: what GET /api/v1/management/schema answers."""
    defaults = values_of(RouterConfig())
    return {
        "types": {
            entity.name: {
                "meaning": entity.meaning,
                "named_by": entity.naming,
                "attributes": [_attribute(each) for each in entity.attributes],
                "operations": [_operation(each) for each in entity.operations],
                "delete": None if entity.delete is None else _operation(entity.delete),
            }
            for entity in TYPES.values()
        },
        "settings": {setting.key: _setting(setting, defaults[setting.key]) for setting in SETTINGS.values()},
    }


def _setting(setting: Setting, default: object) -> dict[str, object]:
    return {
        "allowed": setting.allowed,
        "default": None if setting.secret else default,
        "takes_effect": setting.applies.value,
        "meaning": setting.reason,
        "secret": setting.secret,
        "flag": setting.flag,
        "variable": setting.variable,
    }


def _attribute(attribute: Attribute) -> dict[str, object]:
    found: dict[str, object] = {
        "name": attribute.name,
        "type": attribute.type.value,
        "meaning": attribute.meaning,
        "changed_by": None if attribute.settable is None else attribute.settable.word,
    }
    if attribute.unit is not None:
        found["unit"] = attribute.unit.value
    if attribute.choices:
        found["choices"] = list(attribute.choices)
    if attribute.low is not None:
        found |= {"low": attribute.low, "high": attribute.high}
    return found


def _operation(operation: Operation) -> dict[str, object]:
    return {
        "name": operation.name,
        "meaning": operation.meaning,
        "deliveries": operation.deliveries,
        "role": operation.role.word,
        "harmful": operation.is_harmful,
        "arguments": [{**_attribute(each), "required": each.is_required} for each in operation.arguments],
    }
