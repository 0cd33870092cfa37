-- Sets fields of a record that still is as it was read. Never touches owner, revision or expiry.
--   KEYS 1 record  hash
--   ARGV 1 how many of the following are fields and the values they had; the rest are fields and values to set
-- Answer: 1 amended | 0 the record has changed, or is gone.
if not unchanged(KEYS[1], 1) or redis.call('EXISTS', KEYS[1]) == 0 then
  return 0
end
redis.call('HSET', KEYS[1], unpack(slice(ARGV, ARGV[1] + 2, #ARGV)))
return 1
