"""Support functions of large products, streamed, and kernels for them."""
