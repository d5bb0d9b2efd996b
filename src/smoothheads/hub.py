"""Repositories on the Hugging Face Hub: `hf://user/name[@revision]` stands for a local copy of one.

Only files are fetched, and nothing in them is ever run: what they hold is checked by whoever opens them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeGuard

from smoothheads.errors import HubError, MissingExtraError, SmoothheadsError, reason

if TYPE_CHECKING:
    from huggingface_hub import HfApi

SCHEME: Final = "hf://"
Kind = Literal["model", "dataset"]
_NAME = r"[A-Za-z0-9][\w.-]{0,95}"
_ADDRESS = re.compile(rf"hf://(?:datasets/)?({_NAME}/{_NAME})(?:@([\w./-]{{1,200}}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Address:
    """`repo` is user/name; without a revision the newest is meant."""

    repo: str
    revision: str | None = None

    def __str__(self) -> str:
        return SCHEME + self.repo + (f"@{self.revision}" if self.revision else "")


def is_address(text: object) -> TypeGuard[str]:
    return isinstance(text, str) and text.startswith(SCHEME)


def _unfolded(place: str | Path) -> str | Path:
    """An address that was taken for a path, which joins slashes."""
    if isinstance(place, Path) and place.parts[:1] == (SCHEME.rstrip("/"),):
        return SCHEME + "/".join(place.parts[1:])
    return place


def parse(text: str) -> Address:
    match = _ADDRESS.fullmatch(text)
    if match is None:
        raise HubError(f"{SCHEME}user/name or {SCHEME}user/name@revision", repr(text), "mend the address")
    return Address(match[1], match[2])


def local(place: str | Path, kind: Kind = "model", patterns: Sequence[str] | None = None) -> Path:
    """A path as it is; of an address the folder of its copy, which is fetched if it is not here yet.

    Without a network the copy of that revision is used if it was fetched before. Raises HubError.
    """
    place = _unfolded(place)
    if not is_address(place):
        return Path(place)
    address = parse(place)
    hub = _library()
    with _reaching(address):
        folder = hub.snapshot_download(
            address.repo,
            repo_type=kind,
            revision=address.revision,
            allow_patterns=None if patterns is None else list(patterns),
            library_name="smoothheads",
        )
    return Path(folder)


def upload(
    folder: Path, repo: str, *, message: str, private: bool = False, revision: str | None = None
) -> str:
    """Makes the repository if there is none, and one commit with all files of the folder; its address.

    What is in the repository and not in the folder stays. Raises HubError.
    """
    address = parse(SCHEME + repo.removeprefix(SCHEME))
    with _reaching(address):
        api: HfApi = _library().HfApi(library_name="smoothheads")
        api.create_repo(address.repo, private=private, exist_ok=True)
        if revision is not None:
            api.create_branch(address.repo, branch=revision, exist_ok=True)
        commit = api.upload_folder(
            repo_id=address.repo, folder_path=folder, commit_message=message, revision=revision
        )
    return str(Address(address.repo, commit.oid))


def _library() -> Any:
    try:
        import huggingface_hub
    except ImportError:
        raise MissingExtraError("huggingface_hub", "hub") from None
    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    return huggingface_hub


@contextmanager
def _reaching(address: Address) -> Iterator[None]:
    """Turns what the library raises into one message with a remedy."""
    from huggingface_hub import errors

    known: list[tuple[type[Exception], str, str]] = [  # a kind before the kind that it derives from
        (errors.RevisionNotFoundError, "no such revision", "check what stands behind the @"),
        (errors.GatedRepoError, "one that asks for consent", "agree on its page, then `hf auth login`"),
        (errors.RepositoryNotFoundError, "none, or a private one", "check the name, or `hf auth login`"),
        (errors.LocalEntryNotFoundError, "no connection and no copy here", "connect to the network"),
        (errors.EntryNotFoundError, "a file that is missing there", "check the repository"),
        (errors.HFValidationError, "a name that the Hub refuses", "check the name"),
    ]
    try:
        yield
    except SmoothheadsError:
        raise
    except Exception as error:
        said = ((got, remedy) for kind, got, remedy in known if isinstance(error, kind))
        got, remedy = next(said, (reason(error), "try again"))
        raise HubError(f"the repository {address}", got, remedy) from error
