"""``python -m companion.build``: see :mod:`companion.build.book`."""

from companion.build.book import main

if __name__ == "__main__":
    raise SystemExit(main())
