"""A package, so that its tests can share the writers of real file formats in builders.py."""
