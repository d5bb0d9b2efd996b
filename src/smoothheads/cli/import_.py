"""smoothheads import FILE..."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from smoothheads.cli.common import parse, print_json, say
from smoothheads.data import named
from smoothheads.errors import ConfigError
from smoothheads.models import ModelConfig
from smoothheads.training import RunConfig, TrainConfig

DESCRIPTION = """Turn other people's weights into a checkpoint that certify, predict and ensemble read.

Takes .pth and .pth.tar files of Cohen, Horvath, the SOME authors and whoever uses their layout; nothing in
them is executed. Several files are separate networks and become one head each. The files do not say
architecture, data and sigma, so that these are options."""


@dataclass(frozen=True, kw_only=True)
class Import:
    files: tyro.conf.Positional[tuple[Path, ...]]
    """Weights: the file of one network, or those of several separate networks."""
    arch: str
    """Architecture of the network, e.g. resnet110."""
    data: str
    """Data set that it was trained on; only those in folders, .npz and .parquet files must exist."""
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])]
    """Folder of the checkpoint."""
    root: str | None = None
    """Where the data set lies; it can be named later, when certifying."""
    downscale: int = 1
    """Side of the square groups of pixels that were averaged."""
    size: int | None = None
    """Side of the images of a folder, e.g. 224 for ImageNet (default: the pictures as they are)."""
    heads: int | None = None
    """Heads in the file (default: one, or one per file)."""
    cut: str | None = None
    """Where the trunk ends (default: stage2, layer3 or convs, by the architecture)."""
    sigma: float = 0.25
    """Standard deviation of the noise that the network was trained with."""
    normalize: Literal["standard", "centre", "none"] | None = None
    """standard: the network subtracts the mean and divides by the standard deviation; centre: it only
    subtracts; none: it takes pixels as they are, as the field's LeNets do. Required except for CIFAR-10 and
    folders."""
    mean: tuple[float, ...] = ()
    """Mean per channel that the network subtracts (default: that of the data set)."""
    std: tuple[float, ...] = ()
    """Standard deviation per channel by which it divides, likewise."""
    json: bool = False
    """Print the result as JSON."""


def main(arguments: list[str]) -> None:
    required = tyro.MISSING
    default = Import(files=(), arch=required, data=required, out=required)
    args = parse(default, arguments or ["--help"], prog="import", description=DESCRIPTION)

    from smoothheads.checkpoint.legacy import import_weights
    from smoothheads.models import ARCHITECTURES

    # Where all networks of the field normalise alike, that is the default.
    normalize = args.normalize or ("standard" if args.data in ("cifar10", "folder") else None)
    if normalize is None:
        raise ConfigError(
            f"Add --normalize standard, centre or none: authors normalise images of {args.data} in different "
            "ways; the logits of an image that you know tell which."
        )
    several = len(args.files) > 1
    model = ModelConfig(
        arch=args.arch,
        heads=max(1, len(args.files)) if args.heads is None else args.heads,
        cut=args.cut or ("input" if several else ARCHITECTURES.get(args.arch).cut),
        normalize=normalize != "none",
    )
    size = {} if args.size is None else {"size": args.size}
    config = RunConfig(
        data=named(args.data, root=args.root, downscale=args.downscale, **size),
        model=model,
        train=TrainConfig(sigma=args.sigma),
    )
    out = import_weights(
        args.files, config, args.out, centre_only=normalize == "centre", mean=args.mean, std=args.std
    )
    if args.json:
        print_json({"checkpoint": str(out)})
        return
    say(f"{model.arch}, {model.heads} head(s), trained on {args.data} with sigma {args.sigma:g}")
    print(out)
