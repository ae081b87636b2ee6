-- Takes the oldest entry off a thread's outbox without its being flushed, if it is still this one.
-- KEYS: outbox, its numbers. ARGV: the entry; none to be told what it is.
local oldest = redis.call('LINDEX', KEYS[1], 0)
if #ARGV == 0 then return oldest end
if oldest ~= ARGV[1] then return false end
redis.call('LPOP', KEYS[1])
if redis.call('LLEN', KEYS[1]) == 0 then
  redis.call('DEL', KEYS[2])
else
  redis.call('SET', KEYS[2], string.format('%.0f', tonumber(redis.call('GET', KEYS[2])) + 1))
end
return oldest
