"""What generator rows stand for: owners and budgets, derived symbols, support functions, reduction."""
