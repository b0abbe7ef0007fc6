"""Tests in which backends meet. They start a process for each backend."""
