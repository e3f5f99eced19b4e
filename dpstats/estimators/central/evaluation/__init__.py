"""How well a fit predicts other rows: bought from them, like a fit."""
