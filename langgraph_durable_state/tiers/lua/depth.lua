-- How many entries a thread's outbox holds, and for how many microseconds the oldest has waited.
-- KEYS: outbox.
local oldest = redis.call('LINDEX', KEYS[1], 0)
if not oldest then return {0, 0} end
local since = tonumber(string.sub(oldest, 50, 65))
return {redis.call('LLEN', KEYS[1]), string.format('%.0f', math.max(0, tonumber(now()) - since))}
