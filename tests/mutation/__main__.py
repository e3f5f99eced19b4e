"""``python -m tests.mutation``: see `tests.mutation.run`."""

import sys

from tests.mutation.run import main

raise SystemExit(main(sys.argv[1:]))
