"""Stochastic bandits: Thompson sampling and UCB1, their regret, exact arms."""
