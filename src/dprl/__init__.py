"""Private reinforcement learning, executed.

The package behind the executable companion to Maziar Gomrokchi's thesis "On Privacy for
Reinforcement Learning Algorithms". The names that most of the book's pages use are importable
from here, each when it is first used; the rest is in the named parts:

``mdp``, ``trajectories``, ``transitions``, ``features``, ``evaluation``
    finite decision and reward processes, batches of trajectories, recorded steps, linear
    features, first-visit Monte Carlo and its least-squares solutions; nothing private;
``privacy``
    guarantees, mechanisms, accounting, audits; nothing of reinforcement learning;
``private_evaluation``
    where the two meet: DP-LSW, DP-LSL, sub-sample-and-average, GPOPE;
``off_policy``, ``simulators``
    off-policy evaluation as a saddle point; mountain car and an HIV patient;
``bounds``
    one function for each numbered statement of the sources, as printed and as corrected;
``bandits``, ``intervals``, ``stopping``
    Thompson sampling, exact intervals for a probability, private sequential learning;
``agents``, ``membership``
    DDPG and BCQ; membership inference against them.
"""

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.1.0"

_STUB = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
_MODULE_OF = {
    alias.name: node.module
    for node in _STUB.body
    if isinstance(node, ast.ImportFrom) and node.module
    for alias in node.names
}
__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    """Import a name of the front from its module when it is first used."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'dprl' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
