"""What of a page's code computes the tables that it records."""

import pytest

from companion.page_code import recording_tree
from companion.units import digest_of

CELLS = ["import numpy as np\nx = 1  # one", "records.save('one', x)", "y = 2"]


@pytest.mark.parametrize(
    ("change", "same"),
    [
        (("  # one", ""), True),
        (("x = 1", "'What x is.'\nx = 1"), True),
        (("x = 1", "print(7)\nx = 1"), True),
        (("x = 1", "claims.check('a', printed=True)\nx = 1"), True),
        (("y = 2", "y = 3"), True),  # after the last table
        (("x = 1", "x = 2"), False),
        (("x = 1", "x = 1.0"), False),
        (("import numpy", "import pandas"), False),
    ],
)
def test_what_counts_of_a_page(change, same):
    other = [source.replace(*change) for source in CELLS]
    before, after = (digest_of(recording_tree(cells)) for cells in (CELLS, other))
    assert other != CELLS
    assert (before == after) == same
