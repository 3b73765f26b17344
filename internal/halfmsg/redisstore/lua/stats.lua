#!lua flags=no-writes
-- Purpose: counts the messages of a shard.
-- KEYS: 1 the shard's prefix
-- ARGV: none
-- Returns: for each kept state its count and when the oldest was created in milliseconds, 0 when there is none
local out = {}
for s = 1, #KEPT do
  out[2 * s - 1], out[2 * s] = 0, 0
end
for _, producer in ipairs(call('SMEMBERS', KEYS[1] .. PRODUCERS)) do
  local g = open(producer)
  for s = 1, #KEPT do
    local count = call('ZCARD', g[s])
    if count > 0 then
      out[2 * s - 1] = out[2 * s - 1] + count
      local ms = tonumber(call('ZRANGE', g[s] .. CREATED, 0, 0, 'WITHSCORES')[2])
      if ms and (out[2 * s] == 0 or ms < out[2 * s]) then
        out[2 * s] = ms
      end
    end
  end
end
return out
