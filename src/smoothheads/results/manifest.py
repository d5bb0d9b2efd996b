"""What a ledger's manifest says: the settings, the expected images, and how two manifests differ."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from smoothheads.certify.theorem import THEOREMS, Theorem
from smoothheads.errors import LedgerError, suggest

Manifest = dict[str, Any]

_MISSING = object()


def setting(manifest: Manifest, name: str) -> Any:
    """A setting of the certification, at the top level or else in the `certify` block; None if unknown."""
    if name in manifest:
        return manifest[name]
    block = manifest.get("certify")
    return block.get(name) if isinstance(block, dict) else None


def budget(manifest: Manifest) -> str:
    """How the samples were spent, `fixed` where nothing is said; a bound of its own goes by its name."""
    bound = setting(manifest, "bound")
    if bound not in (None, "clopper-pearson"):
        return str(bound)
    return str(setting(manifest, "budget") or "fixed")


def correction(manifest: Manifest) -> float:
    """What the sampler's noise takes off every p_lower; raises LedgerError where that is not known."""
    said = setting(manifest, "correction")
    if said is None and setting(manifest, "noise") not in (None, "gaussian"):
        raise LedgerError(
            "a manifest that states the correction of its noise", "none", "certify again with this version"
        )
    return float(said or 0.0)


def theorem(manifest: Manifest) -> Theorem:
    """What the noise proves; Gaussian noise where nothing is said, as in every foreign log."""
    noise = setting(manifest, "noise") or "gaussian"
    if noise not in THEOREMS:
        raise LedgerError("a ledger of a known noise", repr(noise), suggest(str(noise), THEOREMS))
    return THEOREMS[noise]


def describe_indices(indices: Sequence[int]) -> dict[str, int] | list[int]:
    """The manifest's `indices`: a progression in three numbers, any other order written out."""
    values = [int(index) for index in indices]
    step = values[1] - values[0] if len(values) > 1 else 1
    if values and step > 0 and values == list(range(values[0], values[0] + step * len(values), step)):
        return {"first": values[0], "step": step, "count": len(values)}
    return values


def shard(manifest: Manifest, number: int, count: int) -> Manifest:
    """The manifest of one of `count` shards (numbered from 0): every count-th image of the same whole run."""
    if not 0 <= number < count:
        raise LedgerError(f"a shard from 0 to {count - 1}", str(number), "number the shards from 0")
    return manifest | {"shard": {"number": number, "of": count}}


def expected_indices(manifest: Manifest) -> tuple[int, ...] | None:
    """The images that this ledger, perhaps a shard, holds when complete, in order; None where not stated."""
    whole, part = run_indices(manifest), manifest.get("shard")
    return whole if whole is None or part is None else whole[int(part["number"]) :: int(part["of"])]


def run_indices(manifest: Manifest) -> tuple[int, ...] | None:
    """The images of the whole run, of all shards together."""
    said = manifest.get("indices")
    if said is None:
        return None
    if isinstance(said, dict):
        first, step, count = (int(said[key]) for key in ("first", "step", "count"))
        return tuple(range(first, first + step * count, step))
    return tuple(int(index) for index in said)


def normal(manifest: Manifest) -> Manifest:
    """As it comes back from the file: tuples are lists, keys are text."""
    plain: Manifest = json.loads(json.dumps(manifest))
    return plain


def differences(stored: Manifest, now: Manifest) -> list[tuple[str, str, str]]:
    """Every key but `created` whose values differ, as (dotted key, stored, now)."""
    old, new = dict(_leaves(normal(stored))), dict(_leaves(normal(now)))
    keys = sorted(key for key in old.keys() | new.keys() if key != "created")
    pairs = [(key, old.get(key, _MISSING), new.get(key, _MISSING)) for key in keys]
    return [(key, _show(a), _show(b)) for key, a, b in pairs if a != b]


def require_equal(stored: Manifest, now: Manifest, where: str) -> None:
    """Raises LedgerError that names every differing key."""
    found = differences(stored, now)
    if found:
        raise LedgerError(
            f"the settings {where} was started with ({'; '.join(f'{key} {a}' for key, a, _ in found)})",
            "; ".join(f"{key} {b}" for key, _, b in found),
            "use another folder or rerun with the original settings",
        )


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else key)
    else:
        yield path, value


def _show(value: Any) -> str:
    text = "nothing" if value is _MISSING else json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
