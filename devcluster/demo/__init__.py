"""The whole product on one machine, on embedded defaults (`make demo`)."""
