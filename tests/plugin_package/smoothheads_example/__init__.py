"""Somebody else's package: docs/extending.md shows these files, and tests/test_extending.py runs them."""
