"""The user commands `vipu`, compatible with the original's, over the user API of any V-IPU
controller."""
