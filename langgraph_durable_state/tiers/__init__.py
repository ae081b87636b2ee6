"""Where state lives, over narrow verbs: Postgres (durable) and Redis (hot)."""
