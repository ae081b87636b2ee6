-- Entries of a thread's outbox as they are found, for one who does not flush them: the first one's
-- number less those skipped, how many come after, and they themselves.
-- KEYS: outbox, its numbers. ARGV: how many to skip, how many, how many bytes (the first is taken
-- whatever its size).
local length, skip = redis.call('LLEN', KEYS[1]), tonumber(ARGV[1])
local answer, size = {redis.call('GET', KEYS[2]) or '0', 0}, 0
for i = skip, math.min(length, skip + tonumber(ARGV[2])) - 1 do
  local entry = redis.call('LINDEX', KEYS[1], i)
  size = size + #entry
  if i > skip and size > tonumber(ARGV[3]) then break end
  table.insert(answer, entry)
end
answer[2] = math.max(0, length - skip - (#answer - 2))
return answer
