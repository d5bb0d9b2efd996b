"""Reading the pickles of the `-py` archives without running what they say.

A pickle is a program: it names functions and calls them. Here every name it may use leads to a stand-in of
this module, never to the thing itself, not even to numpy's own constructors; any other name is refused.
What comes out is dicts, lists, strings, bytes, integers and numeric arrays, or an error.
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothheads.data.check import damaged

ITEM_TYPES = {f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)}


def unpickle(data: bytes, source: Path | str) -> dict[str, Any]:
    """The dict that the pickle holds, keys as text. Anything else is refused; nothing of it is executed."""
    try:
        value = _plain(_Unpickler(io.BytesIO(data), encoding="bytes").load())
        if not isinstance(value, dict):
            raise pickle.UnpicklingError(f"a {type(value).__name__} instead of a dict")
    except Exception as error:  # a damaged pickle can fail in any way; the message names it
        raise damaged(source, "pickle of arrays, dicts, strings and integers", error) from error
    return {_text(key): item for key, item in value.items()}


class _Type:
    """Stands for numpy.ndarray, which is only ever passed on."""

    __slots__ = ()

    def __setstate__(self, state: object) -> None:
        raise pickle.UnpicklingError("a state for a type")


class _Dtype:
    """Stands for numpy.dtype: an integer type in the given byte order."""

    __slots__ = ("item", "order")

    def __init__(self, item: str | bytes, *_: object) -> None:
        self.item, self.order = _text(item).lstrip("|<>="), "<"
        if self.item not in ITEM_TYPES:
            raise pickle.UnpicklingError(f"an array of type {self.item!r}, not of integers")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        order = _text(state[1])
        if order not in ("|", "<", ">"):
            raise pickle.UnpicklingError(f"an array in the byte order {order!r}")
        self.order = order


class _Array:
    """Stands for an array under construction."""

    __slots__ = ("value",)

    def __init__(self, *_: object) -> None:
        self.value: NDArray[Any] = np.empty(0, np.uint8)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran, raw = state
        if type(dtype) is not _Dtype or not isinstance(raw, bytes):
            raise pickle.UnpicklingError("an array of something other than integers")
        item = np.dtype(dtype.order + dtype.item)
        if any(type(side) is not int or side < 0 for side in shape):
            raise pickle.UnpicklingError(f"an array of shape {shape}")
        # numpy itself refuses a shape that needs more or fewer bytes than there are
        self.value = np.frombuffer(raw, item).reshape(shape, order="F" if fortran else "C")


def _encode(text: str, encoding: str) -> bytes:
    """Stands for _codecs.encode, by which Python 3 writes bytes into old pickles."""
    if _text(encoding) not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError(f"bytes encoded as {encoding!r}")
    return text.encode("latin1")


class _Callable:
    """A stand-in that can be called, but to which the pickle can assign nothing."""

    __slots__ = ("_call",)

    def __init__(self, call: Any) -> None:
        self._call = call

    def __call__(self, *arguments: Any) -> Any:
        return self._call(*arguments)

    def __setstate__(self, state: object) -> None:
        raise pickle.UnpicklingError("a state for a function")


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        match f"{module}.{name}":
            case "numpy.core.multiarray._reconstruct" | "numpy._core.multiarray._reconstruct":
                return _Callable(_Array)
            case "numpy.ndarray":
                return _Type()
            case "numpy.dtype":
                return _Callable(_Dtype)
            case "_codecs.encode":
                return _Callable(_encode)
        raise pickle.UnpicklingError(f"a pickle that asks for {module}.{name}, which was refused")


def _plain(value: Any) -> Any:
    match value:
        case _Array():
            return value.value
        case dict():
            return {_plain(key): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case str() | bytes() | int():
            return value
    raise pickle.UnpicklingError(f"a {type(value).__name__}, which was refused")


def _text(value: str | bytes) -> str:
    if not isinstance(value, (str, bytes)):
        raise pickle.UnpicklingError(f"a {type(value).__name__} where text belongs")
    return value.decode("latin1") if isinstance(value, bytes) else value
