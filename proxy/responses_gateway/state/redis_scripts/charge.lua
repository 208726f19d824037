-- The keys are a charge (or an empty text) and counters; the arguments its tokens, how long it is kept, and for each counter
-- what was seen before and when it expires. Returns the counters.
local more = 0
if KEYS[1] ~= '' then
    more = math.max(0, tonumber(ARGV[1]) - tonumber(redis.call('GET', KEYS[1]) or '0'))
    if more > 0 then redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2]) end
end
local found = {}
for index = 2, #KEYS do
    local before = tonumber(redis.call('GET', KEYS[index]) or '0')
    local tokens = math.max(before, tonumber(ARGV[2 * index - 1])) + more
    local text = string.format('%.0f', tokens)
    if tokens > before then
        redis.call('SET', KEYS[index], text)
        redis.call('EXPIREAT', KEYS[index], ARGV[2 * index])
    end
    found[index - 1] = text
end
return found
