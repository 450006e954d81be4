"""The command `fullcert`: one file for each subcommand, and what it says when something is wrong."""
