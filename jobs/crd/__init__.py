"""glue: the generator of the IPUJob CustomResourceDefinition."""
