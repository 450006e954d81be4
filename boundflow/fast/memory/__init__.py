"""What a run will hold, and batches in pieces that fit."""
