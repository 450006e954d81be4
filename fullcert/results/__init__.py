"""What a finished run says: its evaluation, answers for new rows, attacks, audits and votes."""
