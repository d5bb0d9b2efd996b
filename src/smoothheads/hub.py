"""Repositories on the Hugging Face Hub: `hf://user/name[@revision]` stands for a local copy of one.

Only files are fetched, and nothing in them is ever run; whoever opens them checks their hashes.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeGuard

from smoothheads import zoo
from smoothheads.errors import HubError, MissingExtraError, SmoothheadsError, reason

if TYPE_CHECKING:
    from huggingface_hub import HfApi

SCHEME: Final = "hf://"
Kind = Literal["model", "dataset"]
_NAME = r"[A-Za-z0-9][\w.-]{0,95}"
_ADDRESS = re.compile(rf"hf://(?:datasets/)?({_NAME}/{_NAME})(?:@([\w./-]{{1,200}}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Address:
    """A repository user/name at a revision; without one, at the newest commit."""

    repo: str
    revision: str | None = None

    def __str__(self) -> str:
        return SCHEME + self.repo + (f"@{self.revision}" if self.revision else "")


def is_address(text: object) -> TypeGuard[str]:
    """Returns whether a text is `hf://...` or `zoo:...`, which commands cannot write into."""
    return isinstance(text, str) and text.startswith((SCHEME, zoo.SCHEME))


def parse(text: str) -> Address:
    """Returns the repository and revision of an address."""
    match = _ADDRESS.fullmatch(text)
    if match is None:
        raise HubError(
            f"{text!r} is not {SCHEME}user/name or {SCHEME}user/name@revision; correct the address."
        )
    return Address(match[1], match[2])


def local(place: str | Path, kind: Kind = "model", patterns: Sequence[str] | None = None) -> Path:
    """Returns a path as it is, for `zoo:NAME` the folder of that classifier, and for an address the folder of
    its local copy, which is fetched if needed.

    Without a connection the copy of that revision is used if it was fetched before. Raises HubError.

    Args:
        place: a path or an address.
        kind: the kind of repository.
        patterns: fetch only files with such names.
    """
    if isinstance(place, Path) and place.parts[:1] == (SCHEME.rstrip("/"),):
        place = SCHEME + "/".join(place.parts[1:])  # an address that was made a path, which joins slashes
    if str(place).startswith(zoo.SCHEME):
        return zoo.find(place)
    if not is_address(place):
        return Path(place)
    # The Hub's own client fetches what is not in its cache yet.
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
    """Commits all files of the folder and returns the address of the commit. Raises HubError.

    Files that are in the repository and not in the folder stay.

    Args:
        folder: the files.
        repo: user/name; the repository is created if it does not exist.
        message: the message of the commit.
        private: create a private repository.
        revision: the branch, which is created if it does not exist.
    """
    address = parse(SCHEME + repo.removeprefix(SCHEME))
    with _reaching(address):
        # One commit with all files, so that no reader sees half of them.
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
    """Turns the errors of the library into one sentence with a remedy."""
    from huggingface_hub import errors

    problems: list[tuple[type[Exception], str]] = [  # a kind before the kind that it derives from
        (errors.RevisionNotFoundError, "has no such revision; check what follows the @"),
        (errors.GatedRepoError, "asks for consent; agree on its page, then run `hf auth login`"),
        (
            errors.RepositoryNotFoundError,
            "does not exist or is private; check the name, or run `hf auth login`",
        ),
        (errors.LocalEntryNotFoundError, "cannot be reached, and there is no local copy; go online"),
        (errors.EntryNotFoundError, "lacks a file; check the repository"),
        (errors.HFValidationError, "has a name that the Hub refuses; check the name"),
    ]
    try:
        yield
    except SmoothheadsError:
        raise
    except Exception as error:
        known = (problem for kind, problem in problems if isinstance(error, kind))
        problem = next(known, f"cannot be used ({reason(error)}); try again")
        raise HubError(f"The repository {address} {problem}.") from error
