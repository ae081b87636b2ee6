-- The oldest entries of a thread's outbox, for whoever holds the lease on flushing it, or for one
-- who waits for them and names no holder: that work is done twice at worst.
-- KEYS: outbox, its numbers, lease. ARGV: holder, lease in milliseconds, how many.
local owner = redis.call('GET', KEYS[3])
if owner and ARGV[1] ~= '' and owner ~= ARGV[1] then return false end
local left = redis.call('LLEN', KEYS[1])
if left == 0 then
  redis.call('DEL', KEYS[3])
  return {0, 0}
end
if ARGV[1] ~= '' then
  redis.call('DEL', KEYS[3])  -- first: a full server takes what follows a removal
  redis.call('SET', KEYS[3], ARGV[1], 'PX', ARGV[2])
end
local entries = redis.call('LRANGE', KEYS[1], 0, ARGV[3] - 1)
return {redis.call('GET', KEYS[2]), left - #entries, unpack(entries)}
