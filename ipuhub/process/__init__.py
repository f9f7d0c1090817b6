"""What every process of the product is."""
