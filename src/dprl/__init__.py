"""Private reinforcement learning, executed.

The package behind the executable companion to Maziar Gomrokchi's thesis "On
Privacy for Reinforcement Learning Algorithms". It holds what more than one
page of the book needs, and no more:

``mdp``, ``trajectories``, ``features``, ``evaluation``
    finite Markov reward processes, batches of trajectories, first-visit
    Monte Carlo and its least-squares solutions; nothing private;
``privacy``
    guarantees and mechanisms; nothing of reinforcement learning;
``private_evaluation``
    where the two meet: DP-LSW and DP-LSL;
``companion``
    the book's own plumbing: claims, records, sweeps, figures.
"""

__version__ = "0.1.0"
