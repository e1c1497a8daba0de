"""Attacks: networks on pairs of trajectories, scores that need no training, likelihood ratios."""
