"""`oncewire chaos evidence`."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from chaos import options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chaos.evidence.changes import Changes

DEFAULT_FOLDER = Path("docs/evidence")
SHOWN_FILES = 10
"""So many are named; of more, how many each package has. The lines of JSON have all."""
SHOWN_COMMITS = 5


@click.command("evidence", short_help="List what has changed since each page of evidence was made.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default=DEFAULT_FOLDER,
    show_default=True,
    help="Where pages and ledgers are, in a clone of the repository.",
)
@options.as_json("Print a line of JSON for each page, with all files and commits.")
@click.pass_context
def evidence(ctx: click.Context, folder: Path, as_json: bool) -> None:
    """Compare the code that each page of evidence ran on with the code as it is, and write nothing.

    Each page names its commit. It is no failure that code has changed since. Exit code 1 if a page names a commit whose
    code is not the one that its numbers belong to.
    """
    from chaos.evidence.changes import changes_since, records_in

    found = list(changes_since(records_in(folder), folder))
    for changes in found:
        click.echo(json.dumps(changes.as_json()) if as_json else "\n".join(_lines(changes)))
    wrong = [changes.record.page for changes in found if changes.is_wrong]
    if wrong:
        message = (
            f"these name a commit whose code is not the one that they ran on: {'; '.join(wrong)}; record them again"
        )
        click.echo(message, err=True)
    ctx.exit(options.FAILED if wrong else 0)


def _lines(changes: Changes) -> Iterator[str]:
    record = changes.record
    ran = f"{record.page} ran on" + (f" code {record.code}" if record.code else "")
    if record.commit is not None:
        ran += f"{',' if record.code else ''} commit {record.commit.name} of {record.commit.date}"
    if changes.unknown:
        yield f"{ran}; {'WRONG' if changes.is_wrong else 'what has changed since is not known'}: {changes.unknown}"
    elif not changes.files:
        yield f"{ran}; none of its {changes.total} files has changed since"
    else:
        yield f"{ran}; changed since: {len(changes.files)} files, in {len(changes.subjects)} commits"
        packages = Counter(path.partition("/")[0] for path in changes.files)
        counts = [f"{count} of {package}" for package, count in packages.most_common()]
        yield f"  files: {', '.join(changes.files if len(changes.files) <= SHOWN_FILES else counts)}"
        yield from (f"  commit: {subject}" for subject in changes.subjects[:SHOWN_COMMITS])
        if len(changes.subjects) > SHOWN_COMMITS:
            yield "  and more, see --json"
