"""Training objectives: a base method's per-sample losses, teaching weights, and the cosine constraint."""
