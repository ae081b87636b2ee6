-- Keeps a signed head, unless a newer one was seen. KEYS[1] where it is kept.
-- ARGV: the head, which begins with its count in 16 digits, whether to keep it whatever there is,
-- seconds to live.
local have = redis.call('GET', KEYS[1])
if ARGV[2] == '' and have
  and tonumber(string.sub(have, 1, 16)) > tonumber(string.sub(ARGV[1], 1, 16)) then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[3])
return 1
