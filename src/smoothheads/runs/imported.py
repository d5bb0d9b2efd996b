"""Other people's weights become a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from smoothheads import checkpoint
from smoothheads.checkpoint.legacy import load_legacy
from smoothheads.data import describe
from smoothheads.errors import ConfigError
from smoothheads.files import reserve, sha256
from smoothheads.models import build
from smoothheads.training import RunConfig


def import_run(
    files: Sequence[Path | str],
    config: RunConfig,
    out: Path | str,
    *,
    centre_only: bool = False,
    mean: Sequence[float] = (),
    std: Sequence[float] = (),
) -> Path:
    """Writes the checkpoint folder `out` and returns it; nothing in the files is executed.

    `config` says what the files cannot: data, architecture, heads, cut and sigma. Several files are separate
    networks and become one head each. `centre_only`: the network subtracts the mean but divides by nothing;
    `mean` and `std` are others than those of the data set.
    """
    paths, out = [Path(file) for file in files], Path(out)
    reserve(out)
    _check(paths, config)
    info = describe(config.data)
    info = replace(info, mean=tuple(mean) or info.mean, std=tuple(std) or info.std)
    if centre_only:
        info = replace(info, std=(1.0,) * len(info.std))
    for name, values in (("mean", info.mean), ("std", info.std)):
        if len(values) != info.shape[0]:
            raise ConfigError(f"{info.shape[0]} values of {name}", str(len(values)), "give one per channel")
    model = build(config.model, shape=info.shape, classes=info.classes, mean=info.mean, std=info.std, seed=0)
    load_legacy(paths[0] if len(paths) == 1 else paths, model)
    sources = [{"file": path.name, "sha256": sha256(path)} for path in paths]
    checkpoint.save(out, model, config, info, imported=sources)
    return out


def _check(files: Sequence[Path], config: RunConfig) -> None:
    if not files:
        raise ConfigError("at least one file", "none", "name the .pth or .pth.tar to import")
    heads, cut = config.model.heads, config.model.cut
    if len(files) > 1 and (heads, cut) != (len(files), "input"):
        raise ConfigError(
            f"{len(files)} heads and cut 'input' for {len(files)} files",
            f"{heads} head(s) and cut {cut!r}",
            "leave heads and cut out; several files are separate networks",
        )
