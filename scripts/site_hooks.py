"""Hooks of mkdocs (mkdocs.yml): what docs/ does not hold becomes pages, and GitHub's Markdown becomes that of mkdocs.

- README's neighbours (CONTRIBUTING.md, CHANGELOG.md, SECURITY.md, deploy/README.md) become pages under project/.
- Each sub-command of `oncewire` becomes a section of reference/cli.md, from its own help.
- Links to files beside docs/ lead to the repository that `repo_url` names, or become text.
- Parts that the theme loads from other sites become files of this one, where fetch_site_parts.sh has fetched them.
- A list needs no blank line before it on GitHub, and `[a] [b]` are two links there.
"""

import posixpath
import re
from pathlib import Path

import click
from mkdocs.structure.files import File
from mkdocs.utils import get_relative_url

from oncewire.cli.run import root_command

ROOT = Path(__file__).resolve().parents[1]
BESIDE = {
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "SECURITY.md": "project/security.md",
    "deploy/README.md": "project/deploy.md",
    "README.md": "index.md",
}
"""From the project's folder, and the pages of the site that show them."""
SOURCES = {page: source for source, page in BESIDE.items() if page != "index.md"}
PARTS = ROOT / ".tools" / "site"
"""Where `make docs` puts what it fetches."""
SHOWN_AT = "assets/parts"
DIAGRAM = 'class="mermaid"'
LINK = re.compile(r"(!?\[(?:[^\]\[]|\[[^\]]*\])*\])\(([^)\s]+)\)")
EVIDENCE = {"real": "real-processes", "gold": "golden-scenarios", "core": "cores", "part": "parts"}
DEFINITION = re.compile(r"^(\[[^\]]+\]): (\S+)$")
FENCE = re.compile(r"^\s*(```|~~~)")
ITEM = re.compile(r"^\s*(?:[-*]|\d+\.) ")
SCHEME = re.compile(r"^[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def on_config(config):
    """Puts the page of each error condition into the navigation."""
    (reference,) = [part["Reference"] for part in config["nav"] if isinstance(part, dict) and "Reference" in part]
    (errors,) = [part["Error conditions"] for part in reference if "Error conditions" in part]
    folder = ROOT / "docs" / "reference" / "errors"
    errors += sorted(f"reference/errors/{path.name}" for path in folder.glob("*.md") if path.name != "index.md")
    if (PARTS / "iframe-worker.js").is_file():
        # In the place of the one from another site.
        config["extra"]["polyfills"] = [f"{SHOWN_AT}/iframe-worker.js"]
    return config


def on_files(files, config):
    """Adds the pages that docs/ does not hold."""
    for page, source in SOURCES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    files.append(File.generated(config, "reference/cli.md", content=cli_reference()))
    for part in sorted(PARTS.glob("*.js")) + sorted(PARTS.glob("*.LICENSE.txt")):
        files.append(File.generated(config, f"{SHOWN_AT}/{part.name}", abs_src_path=str(part)))
    return files


def on_post_page(output, page, **_):
    """A page with a diagram loads our Mermaid; the theme then fetches none."""
    if DIAGRAM not in output or not (PARTS / "mermaid.js").is_file():
        return output
    source = get_relative_url(f"{SHOWN_AT}/mermaid.js", page.url)
    return output.replace("</head>", f'<script src="{source}"></script></head>', 1)


def on_page_markdown(markdown, page, config, **_):
    """Rewrites links and lists outside of code."""
    uri = page.file.src_uri
    source = SOURCES.get(uri, f"docs/{uri}")
    lines, fence, before = [], None, ""
    for line in markdown.splitlines():
        found = FENCE.match(line)
        if found and fence in (None, found[1]):
            fence = None if fence else found[1]
        elif fence is None:
            if ITEM.match(line) and before.strip() and not ITEM.match(before) and not before.startswith(" "):
                lines.append("")
            lines.append(_prose(line, source, uri, config["repo_url"]))
        if fence is not None or found:
            lines.append(line)
        before = line
    return "\n".join(lines)


def _prose(line, source, uri, repository):
    line = DEFINITION.sub(lambda found: _definition(found, source, uri, repository), line)
    line = LINK.sub(lambda link: _link(link, source, uri, repository), line)
    return line.replace("] [", "]\u200b [")


def _link(link, source, uri, repository):
    aim = _aim(link[2], source, uri, repository)
    return link[1].strip("![]") if aim is None else f"{link[1]}({aim})"


def _definition(found, source, uri, repository):
    """A test of a table of evidence is a link to its row where the test itself cannot be reached."""
    aim = _aim(found[2], source, uri, repository)
    kind = found[1].strip("[]").partition("-")[0]
    if aim is None and kind in EVIDENCE:
        aim = _aim(f"evidence/guarantees.md#{EVIDENCE[kind]}", source, uri, repository)
    return "" if aim is None else f"{found[1]}: {aim}"


def _aim(target, source, uri, repository):
    """Where a link of the page leads on the site; None: nowhere."""
    if SCHEME.match(target) or target.startswith("#"):
        return target
    name, _, anchor = target.partition("#")
    aim = posixpath.normpath(posixpath.join(posixpath.dirname(source), name))
    shown = BESIDE.get(aim) or (aim.removeprefix("docs/") if aim.startswith("docs/") else None)
    if shown is not None:
        away = posixpath.relpath(shown, posixpath.dirname(uri) or ".")
        return away + ("#" + anchor if anchor else "")
    return f"{repository.rstrip('/')}/blob/main/{aim}" if repository else None


# --- commands -----------------------------------------------------------------------------------------------------


def cli_reference():
    """Every command with its arguments and options, as its help says it."""
    group = root_command()
    explained = "Made from the commands' own help. [The command line](../command-line.md) explains them."
    lines = ["# Commands", "", explained, ""]
    context = click.Context(group, info_name="oncewire")
    for name in group.list_commands(context):
        lines += _command(group.get_command(context, name), f"oncewire {name}", 2)
    return "\n".join(lines) + "\n"


def _command(command, path, level):
    context = click.Context(command, info_name=path)
    lines = [f"{'#' * level} {path}", "", *_escaped(command.help or command.short_help or ""), ""]
    arguments = " ".join(each for each in command.collect_usage_pieces(context))
    lines += ["```text", f"{path} {arguments}", "```", ""]
    options = [each.get_help_record(context) for each in command.get_params(context)]
    rows = [record for record in options if record is not None]
    if rows:
        lines += ["| option | meaning |", "|---|---|"]
        lines += [f"| `{_cell(option)}` | {_cell(' '.join(_escaped(meaning)))} |" for option, meaning in rows]
        lines.append("")
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            lines += _command(command.get_command(context, name), f"{path} {name}", min(level + 1, 6))
    return lines


def _escaped(text):
    """Help is plain text: nothing in it is markup."""
    lines = text.replace("\b", "").replace("&", "&amp;").replace("<", "&lt;").splitlines()
    return [re.sub(r"([*_#\[\]])", r"\\\1", line.strip()) for line in lines]


def _cell(text):
    return text.replace("|", "&#124;")
