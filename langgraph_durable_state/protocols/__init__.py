"""Orchestration over both tiers, written once as ``async def`` and driven by either face."""
