"""``python tests/fuzz``: see ``optree.py``."""

import os
import sys
from pathlib import Path

sys.path[:1] = [str(Path(__file__).resolve().parents[2])]
os.environ.pop("LD_PRELOAD", None)  # a sanitizer is for this process, not for the compilers it starts

from tests.fuzz.optree import main

sys.exit(main())
