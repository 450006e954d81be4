"""How long certified training takes, beside plain training of the same network in the same process.

`fullcert bench`, or `python -m fullcert.bench` on a machine that has torch and numpy alone.
"""

from fullcert.system.startup import before_torch

before_torch()  # as the command does: this package is loaded before torch is
