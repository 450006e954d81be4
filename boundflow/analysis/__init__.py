"""What answers withstand and lean on, verified rows, and votes."""
