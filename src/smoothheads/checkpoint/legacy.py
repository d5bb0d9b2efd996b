"""Weights of other people's code: .pth and .pth.tar of Cohen, Horvath and the SOME authors.

Their single networks are `Sequential(normalisation, network)`, with or without DataParallel; their multi-head
networks keep the last stage of head k at `heads.{k}.0` and its linear layer at `heads.{k}.1`. The
normalisation has no entry in these files: the one of the network that is filled counts.
"""

from __future__ import annotations

import pickle
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from smoothheads.checkpoint import save
from smoothheads.data import describe
from smoothheads.errors import CheckpointError, ConfigError
from smoothheads.files import reserve, sha256
from smoothheads.limits import check_unpacked
from smoothheads.models import build
from smoothheads.models.multihead import MultiHead
from smoothheads.training import RunConfig

WRAPPERS: Final = ("module.", "1.")
NAMED: Final = 3  # offending keys that a message lists


def import_weights(
    files: Sequence[Path | str],
    config: RunConfig,
    out: Path | str,
    *,
    centre_only: bool = False,
    mean: Sequence[float] = (),
    std: Sequence[float] = (),
) -> Path:
    """Writes a checkpoint with foreign weights into `out` and returns it; nothing in the files is executed.

    Args:
        files: the file of one network, or those of several separate networks, which become one head each.
        config: data, architecture, heads, cut and sigma, which the files do not say.
        centre_only: the network subtracts the mean but divides by nothing.
        mean: mean per channel that the network subtracts, if not that of the data set.
        std: standard deviation per channel that it divides by, likewise.
    """
    paths, out = [Path(file) for file in files], Path(out)
    reserve(out)
    heads, cut = config.model.heads, config.model.cut
    if not paths:
        raise ConfigError("Name at least one .pth or .pth.tar file to import.")
    if len(paths) > 1 and (heads, cut) != (len(paths), "input"):
        raise ConfigError(
            f"{len(paths)} files are separate networks, hence {len(paths)} heads and the cut 'input', not "
            f"{heads} head(s) and the cut {cut!r}; leave --heads and --cut out."
        )
    # The constants of the normalisation are not in the files: the data set's, unless others are given.
    info = describe(config.data)
    info = replace(info, mean=tuple(mean) or info.mean, std=tuple(std) or info.std)
    if centre_only:
        info = replace(info, std=(1.0,) * len(info.std))
    for name, values in (("mean", info.mean), ("std", info.std)):
        if len(values) != info.shape[0]:
            raise ConfigError(
                f"--{name} needs one value per channel, hence {info.shape[0]}, not {len(values)}."
            )
    # The network gets the weights of the files before anything is written.
    model = build(config.model, shape=info.shape, classes=info.classes, mean=info.mean, std=info.std, seed=0)
    load_legacy(paths[0] if len(paths) == 1 else paths, model)
    sources = [{"file": path.name, "sha256": sha256(path)} for path in paths]
    save(out, model, config, info, imported=sources)
    return out


def read_legacy(path: Path) -> dict[str, Tensor]:
    """Returns the tensors of a foreign file under their foreign names.

    Nothing in the file is executed: everything but plain tensors and values is refused, whoever made it.
    """
    if not path.is_file():
        raise CheckpointError(f"There is no file {path}; check the path.")
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                size = sum(member.file_size for member in archive.infolist())
                check_unpacked(size, path.stat().st_size, path, CheckpointError)
                # torch reads past a flipped bit; the checksums of the archive do not.
                if damaged := archive.testzip():
                    raise zipfile.BadZipFile(f"a wrong checksum of {damaged}")
        content = torch.load(path, map_location="cpu", weights_only=True)
    except CheckpointError:
        raise
    except Exception as error:  # a damaged file can fail anywhere in the reader
        raise CheckpointError(f"{path} {_problem(path, error)}.") from error
    # Training scripts save {"state_dict": ..., "epoch": ..., ...}, others the state alone.
    state = content.get("state_dict", content) if isinstance(content, dict) else content
    # A sparse tensor or one without values (meta) is no weight.
    if not (
        isinstance(state, dict)
        and state
        and all(isinstance(name, str) and isinstance(value, Tensor) for name, value in state.items())
        and all(value.layout == torch.strided and not value.is_meta for value in state.values())
    ):
        raise CheckpointError(
            f"{path} holds no state dict of tensors (but {type(content).__name__}); save model.state_dict(), "
            "or {'state_dict': model.state_dict()}."
        )
    return {name: tensor.detach() for name, tensor in state.items()}


def _problem(path: Path, error: Exception) -> str:
    """Returns why a file cannot be read, and the remedy."""
    text = str(error)
    if not isinstance(error, pickle.UnpicklingError):
        # A text file makes torch say a number or nothing, and a truncated archive something useful.
        reason = f" ({text.partition(chr(10))[0]})" if " " in text else ""
    elif re.search("Unsupported operand (14[0-9]|15[01])", text):  # opcodes of protocols 4 and 5
        return (
            "uses a later pickle protocol than 2, which the reader that executes nothing does not know; "
            "where the file was made, save it again without pickle_protocol"
        )
    else:
        try:
            refused = torch.serialization.get_unsafe_globals_in_checkpoint(path)
        except Exception:  # the format of old versions, or a damaged file
            refused = re.findall(r"GLOBAL ([\w.]+)", text)
        if refused:
            return (
                f"holds more than tensors and plain values: calls of {', '.join(refused[:NAMED])}; nothing "
                "was executed; where the file was made, save model.state_dict() alone"
            )
        reason = ""
    return (
        f"is not a complete file of torch.save{reason}; check that these are PyTorch weights, or fetch the "
        "file again"
    )


def convert(state: Mapping[str, Tensor], model: MultiHead) -> dict[str, Tensor]:
    """Returns a complete state dict of `model` with the foreign weights in it, or raises CheckpointError."""
    foreign = _unwrap(state)
    if any(name.startswith("heads.") for name in foreign):
        # Several heads: `heads.k.0` is the first stage behind the trunk, `heads.k.1` the linear layer.
        stages = [int(match[1]) for name in foreign if (match := re.match(r"layer(\d+)\.", name))]
        parts = {"0": f"layer{max(stages, default=0) + 1}", "1": "fc"}

        def own_name(name: str) -> str:
            head = re.match(r"(heads\.\d+)\.([01])\.", name)
            return f"{head[1]}.{parts[head[2]]}.{name[head.end() :]}" if head else f"trunk.{name}"

    else:
        # One network: our own cut decides what belongs to the trunk.
        shared = {name for name in model.state_dict() if name.startswith("trunk.")}

        def own_name(name: str) -> str:
            return f"trunk.{name}" if f"trunk.{name}" in shared else f"heads.0.{name}"

    return _fitted({own_name(name): value for name, value in foreign.items()}, model)


def load_legacy(path: Path | Sequence[Path], model: MultiHead) -> None:
    """Fills the model, whose cut must be that of the file: `stage2` or `layer3` for several heads.

    Several files of single networks fill the heads of a model that is cut at `input`. After an error the
    model is as it was.
    """
    if isinstance(path, Path):
        state = convert(read_legacy(path), model)
    else:
        singles = [_unwrap(read_legacy(one)) for one in path]
        heads = {f"heads.{k}.{name}": value for k, one in enumerate(singles) for name, value in one.items()}
        state = _fitted(heads, model)
    model.load_state_dict(state)


def _unwrap(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Removes the prefixes of Sequential and DataParallel, in whatever order they were put on."""
    # A prefix counts as a wrapper only if every name has it.
    names = dict(state)
    while wrapper := next((w for w in WRAPPERS if names and all(n.startswith(w) for n in names)), None):
        names = {name.removeprefix(wrapper): value for name, value in names.items()}
    return names


def _fitted(renamed: Mapping[str, Tensor], model: MultiHead) -> dict[str, Tensor]:
    """Returns a complete state; normalisation and BatchNorm's counters may come from the model, because old
    versions did not save them."""
    # Every weight must be there and have the shape of ours; nothing else may be in the file.
    own = model.state_dict()
    optional = {n for n in own if n.startswith("normalize.") or n.endswith("num_batches_tracked")}
    shapes, expected = (
        {name: (tensor.shape, tensor.is_floating_point()) for name, tensor in state.items()}
        for state in (renamed, own)
    )
    faults = {
        "missing": [name for name in own if name not in renamed and name not in optional],
        "unexpected": [name for name in renamed if name not in own],
        "of another shape": [name for name in renamed if name in own and shapes[name] != expected[name]],
    }
    if any(faults.values()):
        details = "; ".join(
            f"{kind}: {', '.join(names[:NAMED])}"
            + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
            for kind, names in faults.items()
            if names
        )
        raise CheckpointError(
            f"The weights do not fit this network with {len(model.heads)} head(s) ({details}); choose the "
            "architecture, classes, heads and cut of the file."
        )
    return {**own, **renamed}
