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
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from smoothheads.errors import CheckpointError
from smoothheads.models.multihead import MultiHead

WRAPPERS: Final = ("module.", "1.")
NAMED: Final = 3  # offending keys that a message lists


def read_legacy(path: Path) -> dict[str, Tensor]:
    """The tensors in a foreign file under their foreign names.

    Nothing in the file is executed: what is not plain tensors and values is refused, whoever made it.
    """
    content = _load(path)
    state = content.get("state_dict", content) if isinstance(content, dict) else content
    if not (isinstance(state, dict) and state and all(_is_entry(*item) for item in state.items())):
        raise CheckpointError(
            f"a state dict of tensors in {path}",
            type(content).__name__,
            "save model.state_dict(), or {'state_dict': model.state_dict()}",
        )
    return {name: tensor.detach() for name, tensor in state.items()}


def convert(state: Mapping[str, Tensor], model: MultiHead) -> dict[str, Tensor]:
    """A complete state dict of `model` with the foreign weights in it, or a CheckpointError."""
    foreign = _unwrap(state)
    several = any(name.startswith("heads.") for name in foreign)
    return _fitted(_rename_heads(foreign) if several else _rename_single(foreign, model), model)


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


def _load(path: Path) -> Any:
    try:
        _check_archive(path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise CheckpointError(f"a file {path}", "none", "check the path") from None
    except pickle.UnpicklingError as error:
        if re.search("Unsupported operand (14[0-9]|15[01])", str(error)):  # opcodes of protocols 4 and 5
            raise CheckpointError(
                f"pickle protocol 2 in {path}, torch.save's own",
                "a later one, which the reader that executes nothing does not know",
                "where the file was made, save it again without pickle_protocol",
            ) from None
        raise CheckpointError(
            f"nothing but tensors and plain values in {path}",
            _refused(path, error),
            "nothing was executed; where the file was made, save model.state_dict() alone",
        ) from None
    except Exception as error:  # a damaged file can fail anywhere in the reader
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise CheckpointError(f"a file of torch.save at {path}", reason, "fetch the file again") from error


def _check_archive(path: Path) -> None:
    """torch reads past a flipped bit; the checksums of the archive do not."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            if damaged := archive.testzip():
                raise zipfile.BadZipFile(f"a wrong checksum of {damaged}")


def _refused(path: Path, error: pickle.UnpicklingError) -> str:
    try:
        names = torch.serialization.get_unsafe_globals_in_checkpoint(path)
    except Exception:  # the format of old versions, or a damaged file
        names = re.findall(r"GLOBAL ([\w.]+)", str(error))
    return f"calls of {', '.join(names[:NAMED])}" if names else "another pickle"


def _is_entry(name: object, value: object) -> bool:
    """Not a meta tensor either, which has a shape and no values."""
    return (
        isinstance(name, str)
        and isinstance(value, Tensor)
        and value.layout == torch.strided
        and not value.is_meta
    )


def _unwrap(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Without the prefixes of Sequential and DataParallel, in whatever order they were put on."""
    names = dict(state)
    while wrapper := next((w for w in WRAPPERS if names and all(n.startswith(w) for n in names)), None):
        names = {name.removeprefix(wrapper): value for name, value in names.items()}
    return names


def _rename_single(foreign: Mapping[str, Tensor], model: MultiHead) -> dict[str, Tensor]:
    shared = {name for name in model.state_dict() if name.startswith("trunk.")}
    return {
        (f"trunk.{name}" if f"trunk.{name}" in shared else f"heads.0.{name}"): value
        for name, value in foreign.items()
    }


def _rename_heads(foreign: Mapping[str, Tensor]) -> dict[str, Tensor]:
    stages = [int(match[1]) for name in foreign if (match := re.match(r"layer(\d+)\.", name))]
    parts = {"0": f"layer{max(stages, default=0) + 1}", "1": "fc"}

    def own(name: str) -> str:
        head = re.match(r"(heads\.\d+)\.([01])\.", name)
        return f"{head[1]}.{parts[head[2]]}.{name[head.end() :]}" if head else f"trunk.{name}"

    return {own(name): value for name, value in foreign.items()}


def _fitted(renamed: Mapping[str, Tensor], model: MultiHead) -> dict[str, Tensor]:
    """Normalisation and BatchNorm's counters, which old versions did not save, may come from the model."""
    own = model.state_dict()
    optional = {n for n in own if n.startswith("normalize.") or n.endswith("num_batches_tracked")}
    faults = {
        "missing": [name for name in own if name not in renamed and name not in optional],
        "unexpected": [name for name in renamed if name not in own],
        "of another form": [
            name for name in renamed if name in own and _form(renamed[name]) != _form(own[name])
        ],
    }
    if any(faults.values()):
        raise CheckpointError(
            f"the weights of this network with {len(model.heads)} head(s)",
            "; ".join(f"{kind}: {_some(names)}" for kind, names in faults.items() if names),
            "build the network with the architecture, classes, heads and cut of the file",
        )
    return {**own, **renamed}


def _form(tensor: Tensor) -> tuple[torch.Size, bool]:
    return tensor.shape, tensor.is_floating_point()


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
