-- Takes flushed entries off a thread's outbox, unless somebody else has; how many are left, -1 then.
-- KEYS: outbox, its numbers, lease, then the spells. ARGV: first number, how many, holder, then of
-- each spell its token, how many heads were flushed, and the digest of the last.
local left = redis.call('LLEN', KEYS[1])
if left == 0 or redis.call('GET', KEYS[2]) ~= ARGV[1] then return -1 end
redis.call('LTRIM', KEYS[1], ARGV[2], -1)  -- first: a full server takes what follows a removal
for i = 4, #KEYS do
  local at = 4 + 3 * (i - 4)
  if redis.call('HGET', KEYS[i], 'token') == ARGV[at] then
    local chain = redis.call('HGET', KEYS[i], 'chain')
    redis.call('HSET', KEYS[i], 'base', ARGV[at + 2],
      'chain', string.sub(chain, 16 * tonumber(ARGV[at + 1]) + 1))
  end
end
left = left - tonumber(ARGV[2])
if left > 0 then
  redis.call('SET', KEYS[2], string.format('%.0f', tonumber(ARGV[1]) + tonumber(ARGV[2])))
else
  redis.call('DEL', KEYS[2])
  if redis.call('GET', KEYS[3]) == ARGV[3] then redis.call('DEL', KEYS[3]) end
end
return left
