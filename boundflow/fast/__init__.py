"""Speed and memory: nothing here decides whether a bound is true."""
