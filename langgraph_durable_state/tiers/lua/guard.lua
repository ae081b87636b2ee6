-- Notes that the durable head is marked for a spell. KEYS: spell. ARGV: token.
if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'marked', '1')
return 1
