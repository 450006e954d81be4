"""`python -m fullcert` is the command `fullcert`."""

from fullcert.cli.command import main

main()
