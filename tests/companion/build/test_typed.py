"""Values that are typed where a page must compute them are found, and only those."""

import pytest

from companion.build.typed import typed_values
from companion.page_code import code_of_page


@pytest.mark.parametrize(
    "code",
    [
        "claims.check('thesis:1', printed=True, n=f())",
        "claims.check('thesis:1', printed=not False, n=f())",
        "claims.check('thesis:1', printed=bool(1), n=f())",
        "fine = 2 > 1\nclaims.check('thesis:1', printed=fine, n=f())",
        "a = False\nb = a\nclaims.check('thesis:1', printed=f(), corrected=not b, n=f())",
        "a, b = True, f()\nclaims.check('thesis:1', reproduced=a, n=b)",
        "claims.check('thesis:1', reproduced=f(), with_deviations=1 == 1, n=f())",
        "claims.check('thesis:1', printed=f(), n=3)",
        "size = 10\nclaims.check('thesis:1', printed=f(), n=2 * size, text='x')",
        "fine = True\ndef g():\n    return claims.check('thesis:1', printed=fine, n=f())",
    ],
)
def test_a_typed_value_is_found(code):
    line = code.count("\n") + 1
    ((found, what),) = typed_values(code)
    assert found == line
    assert "thesis:1" in what


@pytest.mark.parametrize(
    "code",
    [
        "claims.check('thesis:1', printed=f() < 1, n=f())",
        "size = 10\nclaims.check('thesis:1', printed=f(size), n=f(size), runs=size, eps=.1)",
        "ok = True\nfor i in f():\n    ok &= i < 1\nclaims.check('thesis:1', printed=ok, n=f())",
        "ok = True\nif f():\n    ok = False\nclaims.check('thesis:1', printed=ok, n=f())",
        "l = []\nl.append(f())\nclaims.check('thesis:1', printed=all(l), n=len(l))",
        "d = {}\nd[0] = f()\nclaims.check('thesis:1', printed=d[0] < 1, n=d[0])",
        "a = 1\nfor a in f(): pass\nclaims.check('thesis:1', printed=a > 1, n=a)",
        "def g(a=1):\n    return claims.check('thesis:1', printed=a > 1, n=a)",
        "other.check('thesis:1', printed=True)",
        "claims.not_checkable('thesis:1', 'no data')",
    ],
)
def test_a_computed_value_is_not_taken_for_typed(code):
    assert typed_values(code) == []


def test_code_keeps_its_lines():
    page = "text\n```{code-cell} ipython3\n---\ntags: [x]\n---\n%magic\nx = 1\n```\nx = 2\n"
    assert code_of_page(page) == "\n" * 6 + "x = 1\n\n\n"
