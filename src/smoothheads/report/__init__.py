"""Certification results for people: tables, plots and one self-contained page."""
