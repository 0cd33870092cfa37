-- Counts turns that were just committed, in the minute in which that was, and how long each had been pending.
--   ARGV 1 prefix of the tallies   2 how long a minute is kept, ms   then the time of each turn's completion, ms
--   changes <prefix><minute since 1970>  hash  turns, and w<n>: how many waited about 2^(n/2) ms
-- Answer: the minute.
local now = now_ms()
local minute = math.floor(now / 60000)
local key, counts = ARGV[1] .. string.format('%d', minute), {}
for index = 3, #ARGV do
  local waited = math.max(now - ARGV[index], 1)
  local name = 'w' .. string.format('%d', math.floor(2 * math.log(waited) / math.log(2) + 0.5))
  counts[name] = (counts[name] or 0) + 1
end
redis.call('HINCRBY', key, 'turns', #ARGV - 2)
for name, count in pairs(counts) do
  redis.call('HINCRBY', key, name, count)
end
redis.call('PEXPIRE', key, ARGV[2])
return minute
