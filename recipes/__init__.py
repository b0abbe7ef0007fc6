"""Scripts that train the models, one for each task. Run from a checkout.

python -m recipes.vision --help
"""
