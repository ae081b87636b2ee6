-- Keeps pending writes that Postgres has, for a time when it cannot be asked; those of other
-- checkpoints go. KEYS: spell (which has its own), pending writes. ARGV: checkpoint id, seconds to
-- live, then fields and values.
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
for _, field in ipairs(redis.call('HKEYS', KEYS[2])) do
  if string.sub(field, 1, #ARGV[1] + 1) ~= ARGV[1] .. '\0' then
    redis.call('HDEL', KEYS[2], field)
  end
end
for i = 3, #ARGV, 2 do redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1]) end
redis.call('EXPIRE', KEYS[2], ARGV[2])
return 1
