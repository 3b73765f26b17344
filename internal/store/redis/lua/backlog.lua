#!lua flags=no-writes
-- Purpose: counts the messages of a state that are old and could be worked on now.
-- KEYS: 1 the shard's prefix
-- ARGV: 1 code of the state; 2 how old they are at least, in milliseconds; then the names of brokers, empty for the
--   default one
-- Returns: how many messages there are that are old and due, for each producer the smaller of the two counts, and how
--   many that are old are parked for one of the brokers. Other messages wait for their delay or their next try
local s, oldest = tonumber(ARGV[1]), now - ARGV[2]
local total = 0
for _, producer in ipairs(call('SMEMBERS', KEYS[1] .. PRODUCERS)) do
  local g = open(producer)
  local due = call('ZCOUNT', g[s], '-inf', now)
  if due > 0 then
    total = total + math.min(due, call('ZCOUNT', g[s] .. CREATED, '-inf', oldest))
  end
end
for i = 3, #ARGV do
  total = total + call('ZCOUNT', KEYS[1] .. PARKED .. ARGV[i], '-inf', stamp(oldest + PARKTIME))
end
return {total}
