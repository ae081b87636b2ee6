-- Takes flushed entries off a thread's outbox, unless somebody else has, or the server was set back
-- and others are there; how many are left, -1 then.
-- KEYS: outbox, its numbers, lease, then the spells. ARGV: first number, how many, holder, the last
-- one's number in its spell, then of each spell its token and the digest of the last head flushed.
local left = redis.call('LLEN', KEYS[1])
if left == 0 or redis.call('GET', KEYS[2]) ~= ARGV[1] then return -1 end
local last = redis.call('LINDEX', KEYS[1], tonumber(ARGV[2]) - 1)
if not last or tonumber(string.sub(last, 34, 49)) ~= tonumber(ARGV[4]) then return -1 end
redis.call('LTRIM', KEYS[1], ARGV[2], -1)  -- first: a full server takes what follows a removal
for i = 4, #KEYS do
  local token, digest = ARGV[5 + 2 * (i - 4)], ARGV[6 + 2 * (i - 4)]
  if redis.call('HGET', KEYS[i], 'token') == token then
    local chain, after = redis.call('HGET', KEYS[i], 'chain'), 1
    for at = 1, #chain, 16 do
      if string.sub(chain, at, at + 15) == digest then after = at + 16 end
    end
    redis.call('HSET', KEYS[i], 'base', digest, 'chain', string.sub(chain, after))
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
