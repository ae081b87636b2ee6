-- Goes on with a spell on the server that holds it now. KEYS: spell. ARGV: token, number of the last
-- of its entries that Postgres has: a server whose clock is behind must not give it out again.
if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then return 0 end
local last = math.max(tonumber(redis.call('HGET', KEYS[1], 'n')), tonumber(ARGV[2]))
redis.call('PERSIST', KEYS[1])  -- a full server takes what follows a write that it allows
redis.call('HSET', KEYS[1], 'server', server(), 'lineage', lineage('master_replid'), 'n', string.format('%.0f', last),
  'at', now())
return 1
