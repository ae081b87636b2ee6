"""Benchmarks: this saver beside LangGraph's own, interleaved in one run on servers of their own.

``python -m benchmarks`` runs them; ``--help`` says what can be chosen.
"""
