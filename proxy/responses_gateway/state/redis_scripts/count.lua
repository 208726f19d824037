-- Returns the reason of a refusal, the levels and the number of gateways. A level is the hint where there is none, or where the
-- hint is less and the level is stale.
local member = ARGV[1]
local take = ARGV[2] == '1'
local per_minute = {tonumber(ARGV[3]), tonumber(ARGV[4])}
local concurrent = tonumber(ARGV[5])
local hint = {tonumber(ARGV[6]), tonumber(ARGV[7])}
local stale = ARGV[8] == '1'
local running = tonumber(ARGV[10])
if take then running = running - 1 end
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local found = redis.call('HMGET', KEYS[1], 'requests', 'tokens', 'at')
local at = tonumber(found[3] or now)
local level = {0, 0}
for kind = 1, 2 do
    local limit = per_minute[kind]
    if limit > 0 then
        level[kind] = hint[kind]
        if found[kind] and found[3] then
            level[kind] = math.min(limit, tonumber(found[kind]) + math.max(0, now - at) * limit / 60)
            if stale then level[kind] = math.min(level[kind], hint[kind]) end
        end
    end
end
level[1] = level[1] + tonumber(ARGV[12])
level[2] = level[2] - tonumber(ARGV[9])
local others = 0
if concurrent > 0 then
    local fields = redis.call('HGETALL', KEYS[2])
    for index = 1, #fields, 2 do
        if fields[index] ~= member then
            local joined_until = redis.call('ZSCORE', KEYS[3], fields[index])
            if joined_until and tonumber(joined_until) > now then
                others = others + tonumber(fields[index + 1])
            else
                redis.call('HDEL', KEYS[2], fields[index])
            end
        end
    end
end
local refused = ''
if take then
    if per_minute[1] > 0 and level[1] < 0.999999 then refused = 'requests'
    elseif per_minute[2] > 0 and level[2] < 0.999999 then refused = 'tokens'
    elseif concurrent > 0 and others + running >= concurrent then refused = 'concurrency'
    else
        level[1] = level[1] - 1
        running = running + 1
    end
end
local full_in = 0
for kind = 1, 2 do
    if per_minute[kind] > 0 then
        full_in = math.max(full_in, (per_minute[kind] - level[kind]) * 60 / per_minute[kind])
    end
end
if full_in > 0 then
    redis.call('HSET', KEYS[1], 'requests', level[1], 'tokens', level[2], 'at', string.format('%.6f', now))
    redis.call('EXPIRE', KEYS[1], math.ceil(full_in) + 1)
end
if concurrent > 0 then
    if running > 0 then
        redis.call('HSET', KEYS[2], member, running)
        redis.call('EXPIRE', KEYS[2], ARGV[11])
    else
        redis.call('HDEL', KEYS[2], member)
    end
end
return {refused, string.format('%.6f', level[1]), string.format('%.6f', level[2]), redis.call('GET', KEYS[4]) or '1'}
