"""The machine and the user: mistakes in one sentence, processes, threads, signals, locks, and files of strangers."""
