"""Every environment variable of the product, by who reads it, with its default and a sentence."""
