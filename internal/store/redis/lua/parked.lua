#!lua flags=no-writes
-- Purpose: counts the messages of a shard that wait for a broker, by what is there and not by a configuration.
-- KEYS: 1 the shard's prefix
-- ARGV: none
-- Returns: for at most MOST brokers, pairs of a broker, empty for the default one, and its number of messages. An entry
--   whose time has passed counts no more: the message is due, or gone
local MOST = 100
local out = {}
for _, broker in ipairs(call('SRANDMEMBER', KEYS[1] .. PARKEDFOR, MOST)) do
  local count = call('ZCOUNT', KEYS[1] .. PARKED .. broker, '(' .. stamp(now), '+inf')
  if count > 0 then
    out[#out + 1] = broker
    out[#out + 1] = count
  end
end
return out
