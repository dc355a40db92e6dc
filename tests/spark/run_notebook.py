"""Runs the code cells of a notebook in their order, as Jupyter does, and says in one line of JSON what they have left.

    python run_notebook.py NOTEBOOK

Plots are drawn and not shown. For test_notebook.py, in a process of its own: the notebook stops its session.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def main(notebook: str) -> None:
    """Run it."""
    import matplotlib as mpl

    mpl.use("Agg")
    found = json.loads(Path(notebook).read_text(encoding="utf-8"))
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(found["cells"]):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"cell {number}", "exec"), names)
    import matplotlib.pyplot as plt

    plots = [[axes.get_ylabel() for axes in plt.figure(figure).axes if axes.has_data()] for figure in plt.get_fignums()]
    left = {
        "plots": plots,
        "rows": sum(report.rows for report in names["reports"]),
        "behind": max(report.inputs[0].behind for report in names["reports"]),
        "lost": names["lost"],
        "twice": names["twice"],
        "averages": len(names["published"]),
        "folder_is_gone": not names["folder"].exists(),
    }
    sys.stdout.write("\n" + json.dumps(left) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
