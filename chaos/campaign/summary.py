"""The campaign's summary: what its ledger comes to, small enough for the repository, where the ledger is not.

It has rows of the ledger's kind, one for all neighbouring seeds of the same code. A campaign therefore goes on from it
where there is no ledger, and counts what both have once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from chaos.campaign.goals import is_large_enough
from chaos.campaign.ledger import BLOCKS, Block, read_ledger, total_of
from chaos.campaign.seeds import Seeds
from chaos.campaign.tally import sum_up
from chaos.evidence.ledger import LedgerError, recorded, replace_file


def summary_of(ledger: Path) -> Path:
    """The summary of this ledger lies beside it."""
    return ledger.with_suffix(".json")


def read_blocks(ledger: Path) -> list[Block]:
    """What summary and ledger have together, in as few blocks as can be; both may be missing.

    Raises:
        LedgerError: one of them cannot be read.
    """
    return compact([*read_summary(summary_of(ledger)), *read_ledger(ledger)])


def read_summary(path: Path) -> list[Block]:
    """The blocks of a summary; none where there is no file. Raises LedgerError."""
    try:
        return [BLOCKS.decode(row) for row in json.loads(path.read_text(encoding="utf-8"))["blocks"]]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = f"{type(error).__name__}: {error}"
        fix = "restore it from the repository, or remove it: the campaign writes it anew from its ledger"
        raise LedgerError(f"the summary {path} cannot be read", why, fix) from None


def write_summary(path: Path, blocks: Iterable[Block]) -> None:
    """Write it, a line for each block. Raises LedgerError."""
    rows = ",\n".join(json.dumps(BLOCKS.encode(block)) for block in blocks)
    replace_file(path, f'{{"blocks": [\n{rows}\n]}}\n')


def compact(blocks: Sequence[Block]) -> list[Block]:
    """The same sums in as few blocks as can be: neighbours become one, what another block has goes.

    Code versions stand in the order in which they were last run.
    """
    found: list[Block] = []
    for code in codes_of(blocks):
        whole: list[Block] = []
        mine = (block for block in blocks if block.code == code)
        for block in sorted(mine, key=lambda b: (b.seeds.first, -b.seeds.count)):
            before = whole[-1] if whole else None
            if before is None or not _continues(before, block):
                if before is None or block.seeds.first > before.seeds.last:
                    whole.append(block)
                continue
            seeds = Seeds(before.seeds.first, before.seeds.count + block.seeds.count)
            whole[-1] = replace(before, seeds=seeds, tally=sum_up([before.tally, block.tally]))
        found += whole
    return found


def codes_of(blocks: Sequence[Block]) -> list[str]:
    """All code versions, the one that was run last at the end."""
    return list(dict.fromkeys(block.code for block in reversed(blocks)))[::-1]


def recorded_code(blocks: Sequence[Block]) -> str:
    """The code version that a page is about: the last one of which enough was run, and nothing found.

    A campaign of newer code that has only begun does not take the place of one that is whole, unless it found
    something. What it found moves to the other versions when the fixed code has been run.
    """
    tallies = {code: total_of(blocks, code) for code in codes_of(blocks)}
    return recorded({code: (is_large_enough(tally), tally.is_clean) for code, tally in tallies.items()})


def _continues(before: Block, block: Block) -> bool:
    is_alike = (block.python, block.machine) == (before.python, before.machine)
    return is_alike and block.seeds.first == before.seeds.last + 1
