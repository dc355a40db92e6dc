"""Words that commands take for kinds of things: singular and plural mean the same, and a typo is met with a guess."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

import click


class Noun(click.Choice[str]):
    """One of some nouns, in singular or plural: `link` and `links`, `delivery` and `deliveries`."""

    def __init__(self, nouns: Sequence[str]) -> None:
        super().__init__(list(nouns))
        self._known = {form: noun for noun in nouns for form in (*_forms(noun), noun)}

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the noun as we spell it.

        Raises:
            click.BadParameter: it is none of ours.
        """
        if value in self._known:
            return self._known[value]
        close = get_close_matches(value, self._known, 1)
        guess = f" Did you mean {self._known[close[0]]!r}?" if close else ""
        raise click.BadParameter(f"{value!r} is not one of {', '.join(map(str, self.choices))}.{guess}", ctx, param)


def _forms(noun: str) -> tuple[str, ...]:
    if noun.endswith("ies"):
        return (f"{noun[:-3]}y",)
    if noun.endswith("s"):
        return (noun[:-1],)
    return (f"{noun[:-1]}ies", f"{noun}s") if noun.endswith("y") else (f"{noun}s",)
