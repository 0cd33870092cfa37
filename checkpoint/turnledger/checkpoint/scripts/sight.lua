-- One turn as it stands, at one moment. Writes nothing, and reads no content.
--   KEYS 1 record  hash   2 steps  list   3 turns  zset   4 backlog  zset   5 rq job  hash   6 quarantine of the record
--        7 rq job of its rewriting  hash
--   ARGV 1 turn_id   2 ledger prefix   3 the ledger when the record does not name it   4 names of fields, a space between
--        5 record prefix
--   also reads the ledger's open, its pending and the length of its rejected; turn:<id> of the one it waits for
-- Answer: type of the record's key, in quarantine, in open, in turns, in backlog, state of its job (held: it needs none
--         now), bytes of the entry, number of steps, length of pending, length of rejected, the fields, waits for a
--         rewriting.
local function flag(value)
  return value and value ~= 0 and 1 or 0
end

local kind, names, fields = redis.call('TYPE', KEYS[1]).ok, {}, {}
local entry_bytes, steps, ledger, waiting = 0, 0, ARGV[3], false
local job = redis.call('HGET', KEYS[5], 'status')
for name in string.gmatch(ARGV[4], '%S+') do
  names[#names + 1] = name
end
if kind == 'hash' then
  fields = redis.call('HMGET', KEYS[1], unpack(names))
  ledger = redis.call('HGET', KEYS[1], 'ledger') or ledger
  entry_bytes = redis.call('HSTRLEN', KEYS[1], 'entry')
  steps = redis.call('LLEN', KEYS[2])
end
if kind == 'hash' and redis.call('HGET', KEYS[1], 'state') == 'completed' then
  local front = redis.call('LRANGE', ARGV[2] .. ledger .. ':pending', 0, 0)[1]
  waiting = waits(ARGV[5], ARGV[1]) or (front and awaits_fitting(ARGV[5] .. front)) or false
  if awaits_fitting(KEYS[1]) then
    job = redis.call('HGET', KEYS[7], 'status')
  elseif waiting and job ~= 'queued' and job ~= 'started' then
    job = 'held'
  end
end
local lists = ARGV[2] .. ledger
return {kind, redis.call('EXISTS', KEYS[6]), flag(redis.call('SISMEMBER', lists .. ':open', ARGV[1])),
  flag(redis.call('ZSCORE', KEYS[3], ARGV[1])), flag(redis.call('ZSCORE', KEYS[4], ARGV[1])),
  job or '', entry_bytes, steps, redis.call('LLEN', lists .. ':pending'),
  redis.call('LLEN', lists .. ':rejected'), fields, flag(waiting)}
