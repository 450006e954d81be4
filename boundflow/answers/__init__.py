"""Certificates and what they answer."""
