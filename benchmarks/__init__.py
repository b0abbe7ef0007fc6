"""One script a question; each prints what it measured."""
