"""Metrics of several workers as one page in the Prometheus text format: each sample says of which router it is."""

from __future__ import annotations

from collections.abc import Mapping

LABEL = "router"


def merged(pages: Mapping[str, str]) -> str:
    """One page of the pages of these routers, by their ids; a metric's help and type stand once, as the format asks."""
    heads: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for router, page in pages.items():
        family = ""
        for line in page.splitlines():
            if line.startswith("# "):
                family = line.split(" ", 3)[2]
                head = heads.setdefault(family, [])
                if line not in head:
                    head.append(line)
            elif line:
                samples.setdefault(family, []).append(_of(router, line))
    lines = [line for family, head in heads.items() for line in (*head, *samples.get(family, ()))]
    return "".join(f"{line}\n" for line in lines)


def _of(router: str, sample: str) -> str:
    """The sample with the label; ids of routers have no character that would have to be escaped."""
    end = min(at for at in (sample.find("{"), sample.find(" ")) if at >= 0)
    name, rest = sample[:end], sample[end:]
    if not rest.startswith("{"):
        return f'{name}{{{LABEL}="{router}"}}{rest}'
    if rest.startswith(f'{{{LABEL}="'):
        return sample
    return f'{name}{{{LABEL}="{router}",{rest[1:]}'
