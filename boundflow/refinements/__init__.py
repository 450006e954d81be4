"""Bounds that are tighter than a rule needs: every one of them could be left out."""
