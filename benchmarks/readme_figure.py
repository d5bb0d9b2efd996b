"""Draws the README's chart from the results of a study.

smoothheads study benchmarks/paper/main.toml --from benchmarks/paper/main --json > main.json
python benchmarks/readme_figure.py main.json --out docs/images/acr.svg
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")
from matplotlib import pyplot as plt

# The arms of the chart, and the cost of their certificates at the paper's size (docs/paper.md, C7 and C8).
ARMS = {
    "gaussian-single": ("single network", "#9aa5b1", 1.0),
    "gaussian-dnn5": ("five networks", "#5b8db8", 5.0),
    "gaussian-some": ("SOME, five heads", "#d1495b", 1.7),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path, help="what `smoothheads study ... --json` printed")
    parser.add_argument("--out", type=Path, default=Path("docs/images/acr.svg"))
    options = parser.parse_args()
    table = json.loads(options.results.read_text())[0]
    sigmas = sorted({row["sigma"] for row in table["rows"]})
    mpl.rcParams["svg.hashsalt"] = "readme"  # the same file from the same numbers
    figure, axes = plt.subplots(figsize=(6, 3.2))
    for k, (arm, (label, colour, cost)) in enumerate(ARMS.items()):
        rows = {row["sigma"]: row["ACR"] for row in table["rows"] if row["arm"] == arm}
        places = [index + 0.27 * (k - 1) for index in range(len(sigmas))]
        heights = [rows[sigma]["value"] for sigma in sigmas]
        errors = [2 * rows[sigma]["standard_error"] for sigma in sigmas]
        title = f"{label} (cost {cost:g}x)"
        bars = axes.bar(places, heights, 0.25, yerr=errors, capsize=3, color=colour, label=title)
        axes.bar_label(bars, fmt="%.3f", padding=2, fontsize=8)
    axes.set_xticks(range(len(sigmas)), [f"noise sigma = {sigma:g}" for sigma in sigmas])
    axes.set_ylabel("average certified radius")
    axes.set_ylim(0, 1.25 * axes.get_ylim()[1])
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="upper left")
    figure.tight_layout()
    figure.savefig(options.out, metadata={"Date": None})


if __name__ == "__main__":
    main()
