-- The oldest entries of a thread's outbox, for whoever holds the lease on flushing it, or for one
-- who waits for them and names no holder: that work is done twice at worst.
-- KEYS: outbox, its numbers, lease. ARGV: holder, lease in milliseconds, how many, how many bytes
-- (the first is taken whatever its size).
local owner = redis.call('GET', KEYS[3])
if owner and ARGV[1] ~= '' and owner ~= ARGV[1] then return false end
local left = redis.call('LLEN', KEYS[1])
if left == 0 then
  if owner == ARGV[1] then redis.call('DEL', KEYS[3]) end
  return {0, 0}
end
if ARGV[1] ~= '' then
  redis.call('DEL', KEYS[3])  -- first: a full server takes what follows a removal
  redis.call('SET', KEYS[3], ARGV[1], 'PX', ARGV[2])
end
-- Nothing is ever acknowledged under a count that is gone or is not one that was written.
if not string.match(redis.call('GET', KEYS[2]) or '', '^[1-9]%d*$') then
  redis.call('SET', KEYS[2], now())
end
-- The answer is bounded: an entry may be as large as a whole state.
local answer, size = {redis.call('GET', KEYS[2]), 0}, 0
for i = 0, math.min(left, tonumber(ARGV[3])) - 1 do
  local entry = redis.call('LINDEX', KEYS[1], i)
  size = size + #entry
  if i > 0 and size > tonumber(ARGV[4]) then break end
  table.insert(answer, entry)
end
answer[2] = left - (#answer - 2)
return answer
