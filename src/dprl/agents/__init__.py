"""Deep reinforcement learning: DDPG, BCQ and their environments, many agents at once."""
