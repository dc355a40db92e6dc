"""Writes the pages of error conditions from docs/reference/errors/conditions.toml: `python scripts/error_pages.py`.

What our client does after a link was detached with a condition is read from `oncewire.client.failover`. Run it in the
project's folder; tests/docs/test_error_pages.py fails when the pages are not what this makes.
"""

import tomllib
from pathlib import Path

from oncewire.client.failover import LinkEnd, end_of

FOLDER = Path("docs/reference/errors")
CLIENT = {
    LinkEnd.AGAIN: "attaches the link again after a pause",
    LinkEnd.EXPIRED: "raises `SessionExpired`, with the messages whose outcome is unknown",
    LinkEnd.DELETED: "attaches again, which starts a new subscription, and reports `SubscriptionExpired`",
    LinkEnd.STOLEN: "attaches again; after several thefts in a short time it raises `LinkStolen`",
    LinkEnd.ELSEWHERE: "changes to another router and resumes there",
    LinkEnd.REFUSED: "raises `LinkRefused`: to try again would change nothing",
}
CLASSES = {
    "2.8.15": "amqp-error",
    "2.8.16": "connection-error",
    "2.8.17": "session-error",
    "2.8.18": "link-error",
    "4.5.8": "transaction-error",
    "": "of Oncewire",
}
NEVER_ENDS_A_LINK = frozenset(
    {
        "oncewire:rejected",
        "oncewire:rejected-by-application",
        "oncewire:malformed-message",
        "oncewire:not-an-item",
        "oncewire:identity-not-kept",
        "oncewire:no-connection",
        "oncewire:no-answer",
    }
)


def condition_of(name: str) -> str:
    """`amqp:link:stolen` of `amqp-link-stolen`."""
    for prefix in ("amqp-connection-", "amqp-session-", "amqp-link-", "amqp-transaction-", "amqp-", "oncewire-"):
        if name.startswith(prefix):
            return prefix.replace("-", ":") + name.removeprefix(prefix)
    raise ValueError(f"{name} is no condition")


def page_of(name: str, entry: dict) -> str:
    """The page of one condition."""
    condition = condition_of(name)
    defined = f"AMQP 1.0, section {entry['section']}, {CLASSES[entry['section']]}" if entry["section"] else "Oncewire"
    lines = [f"# {condition}", "", entry["meaning"], "", f"Defined by {defined}.", ""]
    lines += ["| sent by | when |", "|---|---|"]
    lines += [f"| {by} | {when} |" for by, when in entry["sent"]]
    if condition not in NEVER_ENDS_A_LINK:
        lines += ["", f"**Our client**, if a link ends with it: {CLIENT[end_of(condition)]}."]
    lines += ["", f"**What to do.** {entry['do']}", "", "[All conditions](index.md)"]
    return "\n".join(lines) + "\n"


def index_of(entries: dict) -> str:
    """The table of all conditions."""
    lines = [
        "# Error conditions",
        "",
        "A connection, session or link that ends with an error, and an outcome *rejected*, name a condition and",
        "describe what happened. Routers log it, too (`client_refused`, `attach_refused`). Errors that our client",
        "raises are in [its reference](../api.md); errors of commands state",
        "[what, why, and what to do](../../command-line.md#errors-and-exit-codes).",
        "",
        "| condition | class | meaning |",
        "|---|---|---|",
    ]
    for name, entry in entries.items():
        lines.append(f"| [{condition_of(name)}]({name}.md) | {CLASSES[entry['section']]} | {entry['meaning']} |")
    return "\n".join(lines) + "\n"


def pages() -> dict[str, str]:
    """All pages, by file name."""
    entries = tomllib.loads((FOLDER / "conditions.toml").read_text(encoding="utf-8"))
    return {"index.md": index_of(entries)} | {f"{name}.md": page_of(name, entry) for name, entry in entries.items()}


def main() -> None:
    """Writes them, and removes what has no entry any more."""
    made = pages()
    for old in FOLDER.glob("*.md"):
        if old.name not in made:
            old.unlink()
    for name, text in made.items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
