"""`durable-state demo`: what the README says, shown on real servers and checked step by step."""
