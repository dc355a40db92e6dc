"""Write the golden scenarios anew: `python -m chaos.mutants.regenerate FOLDER [NAME ...]`, or `FOLDER --retell`.

With `--retell` each scenario keeps its steps, and what the routers answer is written down again. Otherwise, for each
edit of the catalogue: search seeds until its absence shows, shorten the run, write it down with what the shipped core
answers. A name that already has a file is done again only when it is named.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from chaos.mutants.catalogue import EDITS, by_name
from chaos.mutants.edits import Edit, load
from chaos.mutants.search import search, shortest_scenario
from chaos.simulator.scenario import read, replay, write

SEARCH_S = 90.0
SHORTEN_S = 60.0
SEEDS = 200_000


def regenerate(edit: Edit, folder: Path) -> str:
    """Find, shorten and write one scenario; says what came of it."""
    found_by = time.monotonic() + SEARCH_S
    result = search(edit, range(SEEDS), lambda: time.monotonic() < found_by).found
    if result is None:
        return f"{edit.name}: no seed shows it within {SEARCH_S:.0f} s"
    shortened_by = time.monotonic() + SHORTEN_S
    found = shortest_scenario(edit, result, lambda: time.monotonic() < shortened_by)
    if found is None:
        return f"{edit.name}: seed {result.seed} does not repeat as a scenario"
    scenario, violation = found
    shipped = replay(scenario).violation
    if shipped is not None:
        return f"{edit.name}: the shipped core fails too: {shipped}"
    title = f"{edit.name} (rule {edit.rule})\n{edit.why}"
    (folder / f"{edit.name}.txt").write_text(write(scenario, title, violation))
    return f"{edit.name}: {len(scenario.steps)} steps, {violation}"


def restate(file: Path) -> None:
    """Write down what the shipped core answers to the same steps, and what is broken without the rule."""
    text = file.read_text(encoding="utf-8")
    scenario, former, _ = read(text)
    violation = replay(scenario, load((by_name(file.stem),))).violation or former
    title = "\n".join(line.removeprefix("# ") for line in text.splitlines() if line.startswith("# "))
    file.write_text(write(scenario, title, violation), encoding="utf-8")


def main(arguments: list[str]) -> None:
    """Regenerate into the folder named first; further arguments name edits."""
    folder = Path(arguments[0])
    if arguments[1:] == ["--retell"]:
        for file in sorted(folder.glob("*.txt")):
            restate(file)
        return
    folder.mkdir(parents=True, exist_ok=True)
    for edit in EDITS:
        exists = (folder / f"{edit.name}.txt").exists()
        if edit.name in arguments[1:] or (not arguments[1:] and not exists):
            sys.stdout.write(regenerate(edit, folder) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
