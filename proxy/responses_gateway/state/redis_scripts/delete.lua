-- Deletes a log, unless it is another process's.
local owner = redis.call('GET', KEYS[2])
if owner and owner ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1], KEYS[2])
