-- Returns how many gateways there are: the part of a member before the colon. A member without time leaves.
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
local seconds = tonumber(ARGV[2])
if seconds > 0 then
    redis.call('ZADD', KEYS[1], now + seconds, ARGV[1])
    redis.call('EXPIRE', KEYS[1], math.ceil(seconds) + 1)
else
    redis.call('ZREM', KEYS[1], ARGV[1])
end
local gateways = {}
local number = 0
for _, member in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
    local gateway = string.match(member, '^[^:]*')
    if not gateways[gateway] then
        gateways[gateway] = true
        number = number + 1
    end
end
redis.call('SET', KEYS[2], number, 'EX', 3600)
return number
