#!lua flags=no-writes
-- Purpose: counts the messages of a shard.
-- KEYS: 1 the shard's prefix
-- ARGV: none
-- Returns: for each kept state its count, when the oldest was created and when the first is due, in milliseconds; 0 when
--   there is none
local out = {}
for i = 1, 3 * #KEPT do
  out[i] = 0
end
-- first keeps the smaller score of what stands first in an index.
local function first(i, index)
  local ms = tonumber(call('ZRANGE', index, 0, 0, 'WITHSCORES')[2])
  if ms and (out[i] == 0 or ms < out[i]) then
    out[i] = ms
  end
end
for _, producer in ipairs(call('SMEMBERS', KEYS[1] .. PRODUCERS)) do
  local g = open(producer)
  for s = 1, #KEPT do
    local count = call('ZCARD', g[s])
    if count > 0 then
      out[3 * s - 2] = out[3 * s - 2] + count
      first(3 * s - 1, g[s] .. CREATED)
      first(3 * s, g[s])
    end
  end
end
return out
