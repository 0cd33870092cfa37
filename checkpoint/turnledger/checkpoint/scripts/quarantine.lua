-- Moves a record that cannot be read, and its steps, to where nothing reads them. Whatever type the keys have.
--   KEYS 1 record   2 steps   3 quarantine of the record   4 quarantine of the steps
--        5 quarantined  zset  turn_ids by time   6 turns  zset   7 backlog  zset
--   ARGV 1 turn_id   2 how long it is kept, ms; '' for ever   3 type the record had
--        4 how many of the following are fields and the values they had
-- Answer: 1 moved | 0 the record has changed, or is gone.
local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= ARGV[3] or kind == 'none' or (kind == 'hash' and not unchanged(KEYS[1], 4)) then
  return 0
end
local now = now_ms()
local suffix = ''
if redis.call('EXISTS', KEYS[3], KEYS[4]) > 0 then
  suffix = ':' .. now
end

local function move(from, to)
  if redis.call('EXISTS', from) == 0 then
    return
  end
  redis.call('RENAME', from, to)
  if ARGV[2] == '' then
    redis.call('PERSIST', to)
  else
    redis.call('PEXPIRE', to, ARGV[2])
  end
end

move(KEYS[1], KEYS[3] .. suffix)
move(KEYS[2], KEYS[4] .. suffix)
redis.call('ZADD', KEYS[5], now, ARGV[1])
redis.call('ZREM', KEYS[6], ARGV[1])
redis.call('ZREM', KEYS[7], ARGV[1])
return 1
