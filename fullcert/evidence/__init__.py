"""What holds of a run, checked without believing its files: trained again, recomputed, signed."""
