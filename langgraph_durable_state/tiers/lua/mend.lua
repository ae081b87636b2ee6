-- Changes fields of a hash, if all of them are as they were found; 1 if it did.
-- KEYS: the hash. ARGV: of each its name, what was found and what is right, either with a '+' before
-- it; '' stands for no field.
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
for i = 1, #ARGV, 3 do
  local have = redis.call('HGET', KEYS[1], ARGV[i])
  if (have and '+' .. have or '') ~= ARGV[i + 1] then return 0 end
end
for i = 1, #ARGV, 3 do  -- first: a full server takes what follows a removal
  if ARGV[i + 2] == '' then redis.call('HDEL', KEYS[1], ARGV[i]) end
end
for i = 1, #ARGV, 3 do
  if ARGV[i + 2] ~= '' then redis.call('HSET', KEYS[1], ARGV[i], string.sub(ARGV[i + 2], 2)) end
end
return 1
