"""FullCert: train on every dataset an attacker could have left behind, at once, and certify the predictions.

The application on top of the library `boundflow`. This file imports nothing, so that the command starts fast.
"""
