"""smoothheads export LEDGER --out DIR"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from smoothheads.cli.common import first_argument, parse, print_json, say

DESCRIPTION = """Put a certified classifier into one folder to ship: network, converted network if the engine
has one, every setting, the ledger, a summary and the hash of every file. `smoothheads predict OUT image.png`
then runs exactly the function that was certified, on a machine that needs nothing else, no training data.

LEDGER comes first: the folder that `smoothheads certify` wrote, or that of a training run with a `ledger` in
it. A checkpoint or a converted network that is not the certified one any more is refused."""


@dataclass(frozen=True, kw_only=True)
class ExportArguments:
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """The new folder (default: export beside the ledger), or the new file."""
    format: Literal["folder", "onnx"] = "folder"
    """onnx: the network alone, as one file for other runtimes: pixels in [0, 1] in, logits of all heads out.
    Its certificates are those of a ledger that was certified with --engine onnxruntime."""
    checkpoint: Path | None = None
    """The network that the ledger is about, if it does not lie above the ledger."""
    json: bool = False
    """Print the summary as JSON."""


def main(arguments: list[str]) -> None:
    name, rest = first_argument(
        arguments, "a ledger", "give the folder that `smoothheads certify` wrote", writes=True
    )
    args = parse(ExportArguments(), rest, prog=f"export {name or 'LEDGER'}", description=DESCRIPTION)

    from smoothheads.config import load_json
    from smoothheads.results.read import ledger_folder
    from smoothheads.runs.export import export_onnx, export_run
    from smoothheads.runs.models import FACTS

    if args.format == "onnx":
        file = export_onnx(Path(name or ""), args.out or Path("model.onnx"), checkpoint=args.checkpoint)
        print_json({"out": str(file)}) if args.json else print(file)
        return
    ledger = ledger_folder(Path(name or ""))
    out = export_run(ledger, args.out or ledger.with_name("export"), checkpoint=args.checkpoint)
    if args.json:
        print_json({"out": str(out)} | load_json(out / FACTS))
        return
    print(out)
    say(f"try: smoothheads predict {out} IMAGE --radius")
