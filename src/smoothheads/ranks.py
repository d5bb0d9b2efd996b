"""Several processes that train one network: the ranks that torchrun starts, on one machine or on many.

Without torchrun there is one rank, and nothing here does anything. All communication between ranks goes
through this module, so that a lost rank is one message and not a traceback per rank.
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

if TYPE_CHECKING:
    from torch import Tensor

MEETING_SECONDS: Final = 300.0


def launched() -> tuple[int, int]:
    """Returns this process's rank and the number of ranks from torchrun's variables; (0, 1) without it."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def restarted() -> bool:
    """Returns whether torchrun restarts ranks when one is lost."""
    return os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0") != "0"


def rank() -> int:
    """Returns this process's rank once the ranks are joined, else 0."""
    return int(_distributed().get_rank()) if _is_joined() else 0


def count() -> int:
    """Returns the number of joined ranks."""
    return int(_distributed().get_world_size()) if _is_joined() else 1


def first() -> bool:
    """Returns whether this is the rank that writes."""
    return rank() == 0


def own_device(name: str) -> str:
    """Returns the device of this rank: each one of a node has a GPU of its own."""
    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if name == "cuda" and launched()[1] > 1 else name


@contextmanager
def quiet() -> Iterator[None]:
    """Lets the first rank print. Another one is heard only when it was the first to fail (see `joined`)."""
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
    """Joins the ranks for the block. Where one fails, all end, and only the one that was first says why."""
    this, ranks = launched()
    if ranks == 1 or _is_joined():
        yield
        return
    # Agree on a store, in which the first rank that fails leaves a mark.
    distributed = _distributed()
    with _lost_rank_as_error():
        store = _fresh_store(this, ranks)

    def is_first_to_fail() -> bool:
        try:
            return int(store.add("smoothheads/failed", 1)) == 1
        except RuntimeError:  # the store went with the first rank, if torchrun does not host it
            return this <= 1

    try:
        # A GPU that is missing is noticed before the ranks meet.
        parse(own_device(device))
        with _lost_rank_as_error():
            backend = "cpu:gloo,cuda:nccl" if device.startswith("cuda") else "gloo"
            distributed.init_process_group(backend, store=store, rank=this, world_size=ranks)
        yield
    except SmoothheadsError as error:
        if not is_first_to_fail():
            raise SystemExit(2) from None
        if this == 0:
            raise
        # The error of another rank says where it happened.
        raise WorkerError(f"{error} (rank {this} on {socket.gethostname()})") from error
    except BaseException:
        is_first_to_fail()
        raise
    finally:
        if _is_joined():
            distributed.destroy_process_group()


def ordered_sum(rows_KP: Tensor) -> Tensor:
    """Returns the sum [P] of all ranks' rows in their order: the same bits for any number of ranks.

    Each rank adds up one part of the columns, so that none needs memory for the rows of all.
    """
    import torch

    def add(rows: Tensor) -> Tensor:
        total: Tensor = reduce(operator.add, rows)  # in order, unlike torch's own sum
        return total

    ranks = count()
    if ranks == 1:
        return add(rows_KP)
    # Every rank is given one part of the columns, padded to equal width.
    own, width = rows_KP.shape
    part = -(-width // ranks)
    padded = torch.nn.functional.pad(rows_KP, (0, part * ranks - width))
    outgoing = padded.view(own, ranks, part).transpose(0, 1).contiguous()
    incoming, total = torch.empty_like(outgoing), padded.new_empty(ranks * part)
    with _lost_rank_as_error():
        # Rank r receives part r of the columns of all rows, adds them up, and all gather the sums.
        _distributed().all_to_all_single(incoming, outgoing)
        _distributed().all_gather(list(total.chunk(ranks)), add(incoming.view(ranks * own, part)))
    return total[:width]


def side_by_side(columns_LN: Tensor) -> Tensor:
    """Returns the columns of all ranks in their order; ranks may have different numbers of them."""
    import torch

    if count() == 1:
        return columns_LN
    parts: list[Any] = [None] * count()
    with _lost_rank_as_error():
        _distributed().all_gather_object(parts, columns_LN.cpu())
    return torch.cat(parts, dim=1).to(columns_LN.device)


def total(counts: Tensor) -> Tensor:
    """Returns the sum of all ranks' integers."""
    if count() > 1:
        with _lost_rank_as_error():
            _distributed().all_reduce(counts)
    return counts


def any_of(flag: bool) -> bool:
    """Returns whether the flag is set on any rank."""
    import torch

    return flag if count() == 1 else bool(total(torch.tensor(int(flag))))


def from_first(text: str) -> str:
    """Returns the first rank's text; the others' text is ignored."""
    texts = [text]
    if count() > 1:
        with _lost_rank_as_error():
            _distributed().broadcast_object_list(texts, src=0)
    return texts[0]


def require_same(facts: Mapping[str, str]) -> None:
    """Raises WorkerError on a rank that has other facts than the first; the remaining ones lose it then."""
    for what, mine in facts.items():
        expected = from_first(mine)
        if mine != expected:
            raise WorkerError(f"The {what} is {mine}, but {expected} on rank 0: give all ranks the same.")


def _distributed() -> Any:
    import torch

    return torch.distributed


def _is_joined() -> bool:
    distributed = _distributed()
    return bool(distributed.is_available() and distributed.is_initialized())


@contextmanager
def _lost_rank_as_error() -> Iterator[None]:
    """Turns torch's error about a rank that is gone into one message."""
    try:
        yield
    except RuntimeError as error:  # gloo's; those of nccl and the store derive from it
        line = str(error).partition("\n")[0]
        reason = line.partition("] ")[2] or line  # the part behind the place in torch's sources
        raise WorkerError(
            f"At least one of {launched()[1]} ranks is lost ({reason.split('. ')[0].strip()}): see what "
            "torchrun says about it, then run again with --resume. The last saved state is good."
        ) from None


def _fresh_store(this: int, ranks: int) -> Any:
    """Returns a part of torchrun's store that belongs to this start of the ranks alone.

    When torchrun restarts ranks it keeps its store, with the addresses of the dead in it, and each node
    counts restarts for itself. So rank 0 draws a name, and gives it to the ranks that ask for it now.
    """
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        if name not in os.environ:
            raise ConfigError(
                f"WORLD_SIZE is set without {name}: start ranks with torchrun, which sets both."
            )
    # A rank asks for the name with a word of its own, and the answer is stored under that word: answers to
    # ranks that are dead mislead nobody.
    distributed = _distributed()
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
        # Answer every question, also those of ranks that have died since: only the living confirm the name.
        for other in missing:
            if store.check([f"smoothheads/asks/{other}"]):
                question = store.get(f"smoothheads/asks/{other}").decode()
                store.set(f"smoothheads/answer/{question}", name)
        missing = {other for other in missing if not store.check([f"smoothheads/{name}/{other}"])}
        if missing and time.monotonic() > deadline:
            raise RuntimeError(f"no sign of ranks {sorted(missing)}")
        time.sleep(0.02)
    return distributed.PrefixStore(f"smoothheads/{name}", store)
