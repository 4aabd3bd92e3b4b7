"""The command of the app."""
