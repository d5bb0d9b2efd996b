"""Certification: statistics on votes (algorithm, bounds, budgets) and engines that count them."""
