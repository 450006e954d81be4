"""How a file of rows is written, as flags of every command that reads one beside the table of its run."""

from typing import Annotated

import typer

AS_THE_RUN = {"rich_help_panel": "How the file is written", "show_default": "as in the run"}
Encoding = Annotated[str | None, typer.Option(help="Its letters, such as windows-1252.", **AS_THE_RUN)]
Separator = Annotated[str | None, typer.Option(help="What stands between cells: , ; | or tab.", **AS_THE_RUN)]
Decimal = Annotated[str | None, typer.Option(help="Its decimal sign: . or ,", **AS_THE_RUN)]
Thousands = Annotated[
    str | None, typer.Option(help="What stands between thousands: , . ' space or none.", **AS_THE_RUN)
]
