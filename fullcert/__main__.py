"""`python -m fullcert` is the command `fullcert`."""

from fullcert.command import main

main()
