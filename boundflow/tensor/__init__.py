"""Sets as tensors of PyTorch: dispatch, the table of rules, memory layout, random numbers, lifting."""
