"""smoothheads zoo"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from smoothheads.cli.common import parse, print_json
from smoothheads.zoo import entries, installed

DESCRIPTION = """List the trained networks that come with smoothheads. `zoo:NAME` stands for one wherever a
checkpoint is taken, for example `smoothheads predict zoo:NAME image.png --radius`. Each classifier comes with
the ledger that proves its numbers: `smoothheads audit zoo:NAME`. `smoothheads push zoo:NAME user/name` puts
one on the Hugging Face Hub."""


@dataclass(frozen=True, kw_only=True)
class Zoo:
    json: bool = False
    """Print the list as JSON."""


def main(arguments: list[str]) -> None:
    args = parse(Zoo(), arguments, prog="zoo", description=DESCRIPTION)
    networks = list(entries().values())
    if args.json:
        print_json([asdict(entry) for entry in networks])
        return

    from smoothheads.report.table import NONE, Table, number, to_text, word

    # One column for each radius at which any of the ledgers was evaluated.
    radii = sorted({radius for entry in networks for radius in entry.metrics.get("certified", {})}, key=float)
    rows = []
    for entry in networks:
        metrics, certified = entry.metrics, entry.metrics.get("certified", {})
        rows.append(
            (
                word(f"zoo:{entry.name}"),
                word(metrics["data"]),
                number(metrics["sigma"], "g"),
                number(metrics.get("images"), ",d"),
                number(metrics.get("acr"), ".3f"),
                *(number(certified.get(radius), ".1%") for radius in radii),
                number(entry.size, ".1f", 1e-6),
                word(entry.cost) if entry.cost else NONE,
            )
        )
    columns = ("network", "data", "sigma", "images", "ACR", *radii, "MB", "training")
    title = "Trained networks: certified accuracy by radius, size, and cost of training"
    notes = []
    for entry in networks:
        notes.append(f"zoo:{entry.name} was trained by: {entry.command}")
        if psnr := entry.metrics.get("validation", {}).get("psnr"):
            decibels = ", ".join(f"{value:.1f} dB at sigma {sigma}" for sigma, value in psnr.items())
            notes.append(f"It is a denoiser (--denoiser zoo:{entry.name}) and restores images to {decibels}.")
        elif not entry.certified:
            notes.append("It was never certified, and comes without a ledger.")
        if installed(entry.name) is None:
            notes.append("Its files are in a checkout of the repository only.")
    print(to_text(Table(title, columns, tuple(rows), tuple(notes))))
