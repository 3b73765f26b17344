#!lua flags=no-writes
-- Purpose: names the messages of a state, oldest first, from a time on.
-- KEYS: 1 the shard's prefix
-- ARGV: 1 code of the state; 2 from when on, in milliseconds; 3 how many each producer gets, beyond those of the very first
--   millisecond, of which all are named; 4 a producer; empty is all; 5 how old they are at least, in milliseconds
-- Returns: for each producer {name, "1" when there are more, id, created, id, created, ...}
local s, from, most = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local to = ARGV[5] == '0' and '+inf' or now - tonumber(ARGV[5])

local out = {}
local function list(producer)
  local key = open(producer)[s] .. CREATED
  local found = {producer, '0'}
  for _, id in ipairs(call('ZRANGEBYSCORE', key, from, from)) do
    found[#found + 1] = id
    found[#found + 1] = from
  end
  local rest = call('ZRANGEBYSCORE', key, '(' .. from, to, 'WITHSCORES', 'LIMIT', 0, most)
  for _, text in ipairs(rest) do
    found[#found + 1] = text
  end
  if #rest == 2 * most then
    found[2] = '1'
  end
  if #found > 2 then
    out[#out + 1] = found
  end
end

if ARGV[4] ~= '' then
  list(ARGV[4])
else
  for _, producer in ipairs(call('SMEMBERS', KEYS[1] .. PRODUCERS)) do
    list(producer)
  end
end
return out
