"""Several processes that train one network: the ranks that torchrun starts, on one machine or on many.

Without torchrun there is one rank, and nothing here does anything. Whatever ranks say to each other goes
through this module, so that a rank that is lost is one message and not a traceback per rank.
"""

from __future__ import annotations

import operator
import os
import secrets
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from smoothheads.device import parse
from smoothheads.errors import ConfigError, SmoothheadsError, WorkerError
from smoothheads.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

MEETING_SECONDS: Final = 300.0
_SPOKEN: Final = "smoothheads/spoken"


def launched() -> tuple[int, int]:
    """This process's rank and the number of ranks, as torchrun tells them; (0, 1) without it."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def restarted() -> bool:
    """Whether torchrun starts ranks anew when one is lost."""
    return os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0") != "0"


def rank() -> int:
    """Of the ranks that have met."""
    return int(torch.distributed.get_rank()) if _met() else 0


def count() -> int:
    return int(torch.distributed.get_world_size()) if _met() else 1


def first() -> bool:
    """Whether this is the rank that writes."""
    return rank() == 0


def own_device(name: str) -> str:
    """Of several GPUs of a node each rank has its own."""
    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if name == "cuda" and launched()[1] > 1 else name


@contextmanager
def quiet() -> Iterator[None]:
    """Of the ranks that torchrun started the first prints; another one is heard only when it was the first to
    fail, which `joined` decides."""
    if launched()[0] == 0:
        yield
        return
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        try:
            yield
        except WorkerError:
            raise
        except SmoothheadsError:
            raise SystemExit(2) from None
        except KeyboardInterrupt:
            raise SystemExit(130) from None


@contextmanager
def joined(device: str) -> Iterator[None]:
    """The ranks meet and part; where one fails, all end, and only the one that was first says why."""
    this, ranks = launched()
    if ranks == 1 or _met():
        yield
        return
    distributed: Any = torch.distributed
    with _answering():
        store = _meeting_place(this, ranks)
    try:
        parse(own_device(device))
        with _answering():
            backend = "cpu:gloo,cuda:nccl" if device.startswith("cuda") else "gloo"
            distributed.init_process_group(backend, store=store, rank=this, world_size=ranks)
        yield
    except SmoothheadsError as error:
        if not _speaks(store, this):
            raise SystemExit(2) from None
        if this == 0:
            raise
        raise WorkerError(f"{error} (rank {this} on {socket.gethostname()})") from error
    except BaseException:
        _speaks(store, this)
        raise
    finally:
        if _met():
            distributed.destroy_process_group()


def ordered_sum(rows_KP: Tensor) -> Tensor:
    """The sum [P] of all ranks' rows, rank by rank and row by row: the same bits for any number of ranks.

    Each rank adds up one part of the columns, so that none needs memory for the rows of all.
    """
    ranks = count()
    if ranks == 1:
        return _sum(rows_KP)
    own, width = rows_KP.shape
    part = -(-width // ranks)
    padded = torch.nn.functional.pad(rows_KP, (0, part * ranks - width))
    sent = padded.view(own, ranks, part).transpose(0, 1).contiguous()
    got, total = torch.empty_like(sent), padded.new_empty(ranks * part)
    with _answering():
        torch.distributed.all_to_all_single(got, sent)
        mine = _sum(got.view(ranks * own, part))
        torch.distributed.all_gather(list(total.chunk(ranks)), mine)
    return total[:width]


def _sum(rows_KP: Tensor) -> Tensor:
    """In their order, unlike torch's own sum."""
    total: Tensor = reduce(operator.add, rows_KP)
    return total


def side_by_side(columns_LN: Tensor) -> Tensor:
    """The columns of all ranks, which may have different numbers of them, in the order of the ranks."""
    if count() == 1:
        return columns_LN
    size = torch.tensor(columns_LN.shape[1], device=columns_LN.device)
    sizes = [torch.zeros_like(size) for _ in range(count())]
    with _answering():
        torch.distributed.all_gather(sizes, size)
        widest = int(max(sizes))
        padded = torch.nn.functional.pad(columns_LN, (0, widest - columns_LN.shape[1])).contiguous()
        parts = [torch.empty_like(padded) for _ in sizes]
        torch.distributed.all_gather(parts, padded)
    return torch.cat([part[:, : int(size)] for part, size in zip(parts, sizes, strict=True)], dim=1)


def total(counts: Tensor) -> Tensor:
    """Whole numbers of all ranks, added."""
    if count() > 1:
        with _answering():
            torch.distributed.all_reduce(counts)
    return counts


def any_of(flag: bool) -> bool:
    """Whether one of the ranks says so; all get the same answer."""
    return flag if count() == 1 else bool(total(torch.tensor(int(flag))))


def from_first(text: str) -> str:
    """What the first rank says; the others' text is not looked at."""
    if count() == 1:
        return text
    data = text.encode() if first() else b""
    size = total(torch.tensor(len(data)))
    letters = torch.tensor(list(data), dtype=torch.uint8) if first() else torch.empty(int(size)).byte()
    with _answering():
        torch.distributed.broadcast(letters, 0)
    return bytes(letters.tolist()).decode()


def require_same(facts: Mapping[str, str]) -> None:
    """Raises WorkerError on a rank that has other facts than the first; the remaining ones lose it then."""
    for what, mine in facts.items():
        expected = from_first(mine)
        if mine != expected:
            raise WorkerError(f"{what} as on rank 0 ({expected})", mine, "give all ranks the same")


def _met() -> bool:
    return bool(torch.distributed.is_available() and torch.distributed.is_initialized())


@contextmanager
def _answering() -> Iterator[None]:
    """Turns what torch raises when another rank is gone into one message."""
    try:
        yield
    except RuntimeError as error:  # gloo's; those of nccl and the store derive from it
        line = str(error).partition("\n")[0]
        reason = line.partition("] ")[2] or line  # behind the place in torch's sources
        raise WorkerError(
            f"{launched()[1]} ranks that answer",
            f"at least one lost ({reason.split('. ')[0].strip()})",
            "see what torchrun says of it, then run again with --resume: the last saved state is good",
        ) from None


def _speaks(store: Any, this: int) -> bool:
    """Whether this rank is the first of them to fail."""
    try:
        return int(store.add(_SPOKEN, 1)) == 1
    except RuntimeError:  # the store went with the first rank, where torchrun was told not to share its own
        return this <= 1


def _meeting_place(this: int, ranks: int) -> Any:
    """A part of torchrun's store that this start of the ranks has for itself.

    torchrun keeps its store when it starts ranks anew, and in it the addresses of the dead; how often it has
    done so is counted by each node for itself. So rank 0 draws a name, and tells it to those that ask now.
    """
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        if name not in os.environ:
            raise ConfigError(
                f"{name} beside WORLD_SIZE", "none", "start ranks with torchrun, which sets both"
            )
    distributed: Any = torch.distributed
    store, _, _ = next(distributed.rendezvous("env://"))
    if this > 0:
        question = secrets.token_hex(8)
        store.set(f"smoothheads/asks/{this}", question)
        name = store.get(f"smoothheads/answer/{question}").decode()
        store.set(f"smoothheads/{name}/{this}", "here")
        return distributed.PrefixStore(f"smoothheads/{name}", store)
    name, missing = secrets.token_hex(8), set(range(1, ranks))
    deadline = time.monotonic() + MEETING_SECONDS
    while missing:
        for other in missing:
            if store.check([f"smoothheads/asks/{other}"]):
                question = store.get(f"smoothheads/asks/{other}").decode()
                store.set(f"smoothheads/answer/{question}", name)
        missing = {other for other in missing if not store.check([f"smoothheads/{name}/{other}"])}
        if missing and time.monotonic() > deadline:
            raise RuntimeError(f"no sign of ranks {sorted(missing)}")
        time.sleep(0.02)
    return distributed.PrefixStore(f"smoothheads/{name}", store)
