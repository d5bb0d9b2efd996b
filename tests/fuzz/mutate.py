"""Ways to damage a file: bytes, words of a table, values of a JSON object. All from one seeded generator."""

from __future__ import annotations

import copy
import json
from random import Random
from typing import Any

WORDS = (
    *(
        b"",
        b"0",
        b"-1",
        b"1e400",
        b"nan",
        b"inf",
        b"-0",
        b"1_0",
        b"9" * 30,
        b"9" * 5000,
        b"0x10",
        b"\xff\xfe",
    ),
    *(b"\0", b"1:2,3:4", b";;;", b":", b"\xe2\x80\xa8", b"\x1b[2J", b"true", b"0:00:0x", b"0.5", b"-7", b"2"),
)
DEEP = "deep"
NUMBERS = (0, -1, 1, 2, 0.5, -0.5, 1e-300, 1e300, 10**18, 10**30, 10**400, float("nan"), float("inf"))
VALUES: tuple[Any, ...] = (
    *(None, True, False, *NUMBERS, "", "x", "fixed", "\ud800", "\x1b[2J", "a" * 3000, "../../etc", "0"),
    *([], {}, [[]], {"": None}, [None] * 3, {"name": []}, {"name": "none"}, ["a", 1], {"sha256": 3}),
)


def damage_bytes(data: bytes, rng: Random) -> bytes:
    """One to four of: a byte changed, bytes inserted, removed, doubled or cut off."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(out) + 1)
        length = min(rng.choice((1, 1, 2, 4, 8, 64)), len(out) - place)
        match rng.randrange(7):
            case 0 | 1 if place < len(out):
                out[place] ^= 1 << rng.randrange(8)
            case 2 if place < len(out):
                out[place] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            case 3:
                out[place:place] = rng.randbytes(rng.choice((1, 2, 8)))
            case 4:
                del out[place : place + length]
            case 5:
                out[place:place] = out[place : place + length]
            case 6 if rng.random() < 0.3:
                del out[place:]
    return bytes(out)


def damage_table(data: bytes, rng: Random) -> bytes:
    """Words replaced, lines doubled, dropped or exchanged; now and then plain damage."""
    if rng.random() < 0.2:
        return damage_bytes(data, rng)
    lines = data.split(b"\n")
    for _ in range(rng.randint(1, 3)):
        row = rng.randrange(len(lines))
        match rng.randrange(6):
            case 0:
                lines.insert(row, rng.choice(lines))
            case 1 if len(lines) > 1:
                del lines[row]
            case 2:
                lines[row] = rng.choice(WORDS).join(lines[row].split(b"\t"))
            case _:
                words = lines[row].split(b"\t")
                words[rng.randrange(len(words))] = rng.choice(WORDS)
                lines[row] = b"\t".join(words)
    return b"\n".join(lines)


def damage_json(value: Any, rng: Random) -> bytes:
    """Values replaced, keys dropped, renamed or exchanged; now and then nested deeply or damaged as text."""
    text = json.dumps(value)
    if rng.random() < 0.1:
        return damage_bytes(text.encode(), rng)
    changed = copy.deepcopy(value)
    for _ in range(rng.randint(1, 3)):
        holder = rng.choice(_holders(changed))
        key = rng.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
        match rng.randrange(8):
            case 0:
                del holder[key]
            case 1 if isinstance(holder, dict):
                holder[f"{key}x"] = holder.pop(key)
            case 2:
                holder[key] = DEEP
            case 3:
                holder[key] = copy.deepcopy(rng.choice(_holders(changed)))
            case _:
                holder[key] = copy.deepcopy(rng.choice(VALUES))
        if not _holders(changed):
            break
    depth = rng.choice((3, 60, 3000))
    return json.dumps(changed).replace(f'"{DEEP}"', "[" * depth + "]" * depth).encode()


def _holders(value: Any) -> list[Any]:
    """Every dict and list with something in it."""
    held, todo = [], [value]
    while todo:
        item = todo.pop()
        if isinstance(item, (dict, list)) and item:
            held.append(item)
            todo += item.values() if isinstance(item, dict) else item
    return held
