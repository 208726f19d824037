-- An entry whose last field is `end` ends its log. Returns 1 if the piece was written, 0 if the last entry is not the expected
-- one, -1 if the log has ended or is another process's. Without an expected entry the piece replaces the log.
local owner = redis.call('GET', KEYS[2])
if owner and owner ~= ARGV[8] and ARGV[7] ~= '1' then return -1 end
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
if last and last[2][#last[2] - 1] == 'end' then return -1 end
if ARGV[1] == '' then redis.call('DEL', KEYS[1])
elseif (last and last[1] or '0-0') ~= ARGV[1] then return 0 end
local entry = {'XADD', KEYS[1], 'MAXLEN', '~', ARGV[6], ARGV[2], 'first', ARGV[3], 'data', ARGV[4]}
if ARGV[9] ~= '' then entry[#entry + 1] = 'journal'; entry[#entry + 1] = ARGV[9] end
if ARGV[7] == '1' then entry[#entry + 1] = 'end'; entry[#entry + 1] = '1' end
redis.call(unpack(entry))
redis.call('EXPIRE', KEYS[1], ARGV[5])
return 1
