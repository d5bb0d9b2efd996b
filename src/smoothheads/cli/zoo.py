"""smoothheads zoo"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from smoothheads.cli.common import parse, print_json
from smoothheads.zoo import entries

DESCRIPTION = """List the trained classifiers that come with smoothheads. `zoo:NAME` stands for one wherever a
checkpoint is taken, for example `smoothheads predict zoo:NAME image.png --radius`. Each comes with the ledger
that proves its numbers: `smoothheads audit zoo:NAME`."""


@dataclass(frozen=True, kw_only=True)
class Zoo:
    json: bool = False
    """Print the list as JSON."""


def main(arguments: list[str]) -> None:
    args = parse(Zoo(), arguments, prog="zoo", description=DESCRIPTION)
    classifiers = list(entries().values())
    if args.json:
        print_json([asdict(entry) for entry in classifiers])
        return
    if not classifiers:
        print("The zoo is empty in this version.")
    for entry in classifiers:
        metrics = entry.metrics
        certified = ", ".join(f"{value:.1%} at {radius}" for radius, value in metrics["certified"].items())
        print(f"zoo:{entry.name}  ({entry.size / 1e6:.1f} MB)")
        setting = f"{metrics['data']}, sigma {metrics['sigma']:g}, {metrics['images']} images"
        print(f"  {setting}: ACR {metrics['acr']:.3f}; certified accuracy {certified}")
        print(f"  trained by: {entry.command}" + (f" ({entry.cost})" if entry.cost else ""))
