-- Ends the wait for a turn's rewriting when no job is there that would do it: its over-long pieces become names.
--   KEYS 1 record  hash   2 rq job  hash   3 rq queue  list   4 rq intermediate queue  list
--        5 rq executions of the job  zset
--   ARGV 1 job id
-- Answer: 1 given up now | 0 it has a job, or does not wait.
if not awaits_fitting(KEYS[1]) or is_on_its_way(ARGV[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]) then
  return 0
end
redis.call('HSET', KEYS[1], 'fitting', 'names')
return 1
