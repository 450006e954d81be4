"""The version of BoundFlow: certificates record it, and a checkpoint of another one is refused."""

__version__ = "0.2.0"
