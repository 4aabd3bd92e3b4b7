"""A shop that does not do what the demo claims, to see the demo notice."""
