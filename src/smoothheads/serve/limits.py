"""What one request may ask for, and how many may ask at once."""

from __future__ import annotations

from dataclasses import dataclass, fields

from smoothheads.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Everything beyond these is refused with a status that says so."""

    n: int = 100_000
    """Samples per image."""
    seconds: float = 60.0
    """Of work per request, once it has begun; a certificate that stands by then is given."""
    images: int = 32
    """Images per request."""
    body: int = 16 * 2**20
    """Bytes of a request."""
    pixels: int = 2**24
    """Width times height of an image, before it is decoded."""
    at_once: int = 8
    """Requests that share the network; they take turns pass by pass."""
    queue: int = 32
    """Requests that wait; what comes on top is refused with 429."""
    patience: float = 20.0
    """Seconds within which a client must send its request, and take what it is sent."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if not getattr(self, field.name) > (-1 if field.name == "queue" else 0):
                raise ConfigError(f"{field.name} > 0", str(getattr(self, field.name)), "raise the limit")
