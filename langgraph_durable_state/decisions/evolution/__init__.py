"""The shape of a user's state from one version of a graph to the next: pure functions."""
