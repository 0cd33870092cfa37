-- Adds up what committed turns say their model calls cost, in the hour in which they were committed.
--   ARGV 1 prefix of the tallies   2 how long an hour is kept, ms   3 how many models an hour tells apart
--        then five a model: its name, calls, input tokens, output tokens, cached tokens
--   changes <prefix><hour since 1970>  hash  calls:<model>, input:<model>, output:<model>, cached:<model>
-- A model too many is added up under the name "other". Answer: the hour.
local hour = string.format('%d', math.floor(now_ms() / 3600000))
local key = ARGV[1] .. hour
local models = redis.call('HLEN', key) / 4

for index = 4, #ARGV, 5 do
  local model = ARGV[index]
  if redis.call('HEXISTS', key, 'calls:' .. model) == 0 then
    if models >= tonumber(ARGV[3]) then
      model = 'other'
    end
    models = models + 1
  end
  for place, name in ipairs({ 'calls:', 'input:', 'output:', 'cached:' }) do
    redis.call('HINCRBY', key, name .. model, ARGV[index + place])
  end
end
redis.call('PEXPIRE', key, ARGV[2])
return hour
