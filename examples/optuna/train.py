#!/usr/bin/env python3
"""What a trial runs: the less, the nearer x and y are to 1 and -2."""
import json
import sys

x, y = float(sys.argv[1]), float(sys.argv[2])
print(json.dumps({"loss": (x - 1) ** 2 + (y + 2) ** 2}))
