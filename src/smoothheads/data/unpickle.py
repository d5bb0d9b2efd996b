"""Reading the pickles of the `-py` archives without running what they say.

A pickle is a program: it names functions and calls them. Here every name it may use leads to a stand-in of
this module, never to the thing itself, not even to numpy's own constructors; any other name is refused.
What comes out is one dict of integers, strings, bytes, integer arrays and lists of such, or an error. Time
and memory are proportional to the length of the pickle: nothing is expanded, hashed or copied repeatedly.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from smoothheads.data.check import damaged

ITEM_TYPES = {f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)}
SHORT = 32  # no name of a type, an order or an encoding is longer, nor has an array more sides


def unpickle(data: bytes, source: Path | str) -> dict[str, Any]:
    """The dict that the pickle holds, keys as text. Anything else is refused; nothing of it is executed."""
    try:
        value = _Unpickler(data).load()
        if not isinstance(value, dict):
            raise pickle.UnpicklingError(f"a {_kind(value)} instead of a dict")
        return {_text(key): _plain(item) for key, item in value.items()}
    except Exception as error:  # a damaged pickle can fail in any way; the message names it
        raise damaged(source, "pickle of arrays, lists, strings and integers", error) from error


class _Dtype:
    """Stands for numpy.dtype: an integer type in the given byte order."""

    __slots__ = ("item", "order")

    def __init__(self, item: str | bytes, *_: object) -> None:
        self.item, self.order = _short(item).lstrip("|<>="), "<"
        if self.item not in ITEM_TYPES:
            raise pickle.UnpicklingError(f"an array of type {self.item!r}, not of integers")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        order = _short(state[1])
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
        if len(shape) > SHORT or any(type(side) is not int or not 0 <= side <= len(raw) for side in shape):
            raise pickle.UnpicklingError("an array whose shape is not that of its bytes")
        # numpy itself refuses a shape that needs more or fewer bytes than there are
        self.value = np.frombuffer(raw, item).reshape(shape, order="F" if fortran else "C")


class _Callable:
    """A stand-in that can be called, unless for nothing, but to which the pickle can assign nothing."""

    __slots__ = ("_call",)

    def __init__(self, call: Any) -> None:
        self._call = call

    def __call__(self, *arguments: Any) -> Any:
        return self._call(*arguments)

    def __setstate__(self, state: object) -> None:
        raise pickle.UnpicklingError("a state for a function")


class _Unpickler(pickle._Unpickler):
    """Python's own reader written in Python: its memo is a dict, whose size no pickle can dictate."""

    dispatch: ClassVar[dict[int, Any]] = dict(pickle._Unpickler.dispatch)
    stack: list[Any]  # these three are the base class's own
    append: Callable[[Any], None]
    pop_mark: Callable[[], list[Any]]

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data), encoding="bytes")
        self.left = len(data)  # bytes that may still be encoded: as many as there are

    def find_class(self, module: str, name: str) -> Any:
        match f"{module}.{name}":
            case "numpy.core.multiarray._reconstruct" | "numpy._core.multiarray._reconstruct":
                return _Callable(_Array)
            case "numpy.ndarray":
                return _Callable(None)  # only ever passed on
            case "numpy.dtype":
                return _Callable(_Dtype)
            case "_codecs.encode":
                return _Callable(self._encode)
        raise pickle.UnpicklingError(f"a pickle that asks for {module}.{name}, which was refused")

    def _encode(self, text: str, encoding: str) -> bytes:
        """Stands for _codecs.encode, by which Python 3 writes bytes into old pickles."""
        if _short(encoding) not in ("latin1", "latin-1"):
            raise pickle.UnpicklingError(f"bytes encoded as {encoding!r}")
        self.left -= len(text)
        if self.left < 0:
            raise pickle.UnpicklingError("more bytes than the file can hold")
        return text.encode("latin1")

    def set_item(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        _fill(self.stack[-1], [key, value])

    def set_items(self) -> None:
        items = self.pop_mark()
        _fill(self.stack[-1], items)

    def new_dict(self) -> None:
        items = self.pop_mark()
        self.append(_fill({}, items))

    def refuse(self) -> None:
        raise pickle.UnpicklingError("a set, which was refused")


_Unpickler.dispatch |= {
    pickle.SETITEM[0]: _Unpickler.set_item,
    pickle.SETITEMS[0]: _Unpickler.set_items,
    pickle.DICT[0]: _Unpickler.new_dict,
    pickle.EMPTY_SET[0]: _Unpickler.refuse,
    pickle.FROZENSET[0]: _Unpickler.refuse,
}


def _fill(held: object, items: list[Any]) -> dict[Any, Any]:
    """Keys must be text: to hash nested tuples can take for ever."""
    if not isinstance(held, dict) or len(items) % 2:
        raise pickle.UnpicklingError(f"a {_kind(held)} where a dict belongs")
    for key, value in zip(items[::2], items[1::2], strict=True):
        if not isinstance(key, (str, bytes)):
            raise pickle.UnpicklingError(f"a {_kind(key)} as a key, which was refused")
        held[key] = value
    return held


def _plain(value: Any) -> Any:
    match value:
        case _Array():
            return value.value
        case list() | tuple() if not any(isinstance(item, (list, tuple, dict)) for item in value):
            return [_plain(item) for item in value]
        case str() | bytes() | int():
            return value
    raise pickle.UnpicklingError(f"a {_kind(value)}, which was refused")


def _kind(value: object) -> str:
    nested = isinstance(value, (list, tuple)) and "nested "
    return f"{nested or ''}{type(value).__name__}"


def _short(value: str | bytes) -> str:
    if isinstance(value, (str, bytes)) and len(value) > SHORT:
        raise pickle.UnpicklingError("a name that is too long")
    return _text(value)


def _text(value: str | bytes) -> str:
    if not isinstance(value, (str, bytes)):
        raise pickle.UnpicklingError(f"a {_kind(value)} where text belongs")
    return value.decode("latin1") if isinstance(value, bytes) else value
