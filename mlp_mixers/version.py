"""The version, readable without importing Keras."""

__version__ = "0.1.0.dev0"
