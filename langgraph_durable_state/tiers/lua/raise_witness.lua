-- Keeps a signed head, unless a newer one was seen. 0 if one was forgotten since it was looked at:
-- it may be gone. KEYS: where it is kept, where that is counted.
-- ARGV: the head, which begins with its count in 16 digits, whether to keep it whatever there is,
-- seconds to live, how often one had been forgotten when it was looked at.
if (redis.call('GET', KEYS[2]) or '') ~= ARGV[4] then return 0 end
local have = redis.call('GET', KEYS[1])
if ARGV[2] == '' and have
  and tonumber(string.sub(have, 1, 16)) > tonumber(string.sub(ARGV[1], 1, 16)) then return 1 end
redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[3])
return 1
