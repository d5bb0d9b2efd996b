"""Configurations to and from JSON, and the checks that they share. Nothing heavy is imported here."""

from smoothheads.config.codec import digest, from_dict, to_dict
from smoothheads.config.reader import load_json, parse_json

__all__ = ["digest", "from_dict", "load_json", "parse_json", "to_dict"]
