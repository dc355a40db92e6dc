"""Edits of whose link it is (rule A-2c)."""

from __future__ import annotations

from chaos.mutants.edits import Edit

IDENTITY_EDITS: tuple[Edit, ...] = (
    Edit(
        "whoever-logs-in",
        "A-2c",
        '        user = "" if owner.adopts else owner.user\n',
        '        user = ""\n',
        "two users whose links have the same names cannot both attach",
        aim=("drop-s", "same_names=1", "subscribers=2"),
    ),
)
