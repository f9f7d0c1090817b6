"""The commands `vipu` of users, as the original's, over the user API of any V-IPU controller."""
