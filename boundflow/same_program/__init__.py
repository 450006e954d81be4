"""The plain run and the run on sets are one program: what it rests on, what it draws and changes, and the tripwire."""
