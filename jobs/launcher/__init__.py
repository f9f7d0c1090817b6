"""`ipuhub-launcher`: the init container of a launcher pod."""
