"""Attacks on the smoothed classifier: they try to prove certificates wrong, and bound them from above."""
