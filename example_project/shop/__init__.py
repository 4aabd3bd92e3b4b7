"""The shop: products, orders, and the jobs that follow an order."""
