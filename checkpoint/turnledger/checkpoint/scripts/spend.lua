-- Adds tokens to what an agent, and the deployment, have spent in this window. The same operation again adds nothing.
--   KEYS 1 operation  str  there once it was counted
--   ARGV 1 what precedes a window's number in its key   2 length of a window, ms   3 agent   4 tokens
--        5 how long an operation is remembered, ms
--   also changes spend:<window>, hash, tokens by `deployment` and `agent:<agent>`, gone a window after its own
-- Answer: 1 counted now | 0 it was counted before.
if redis.call('EXISTS', KEYS[1]) == 1 then
  return 0
end
local window = math.floor(now_ms() / ARGV[2])
local spent = ARGV[1] .. string.format('%.0f', window)
redis.call('SET', KEYS[1], '1', 'PX', ARGV[5])
redis.call('HINCRBY', spent, 'deployment', ARGV[4])
redis.call('HINCRBY', spent, 'agent:' .. ARGV[3], ARGV[4])
redis.call('PEXPIREAT', spent, string.format('%.0f', (window + 2) * ARGV[2]))
return 1
