"""``python tests/fuzz``: see ``optree.py``."""

import os
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
sys.path[:1] = [str(TESTS)]
sys.path.append(str(TESTS.parent))  # where the package is not installed
os.environ.pop("LD_PRELOAD", None)  # a sanitizer is for this process, not for the compilers it starts

from fuzz.optree import main  # noqa: E402

sys.exit(main())
