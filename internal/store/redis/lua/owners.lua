#!lua flags=no-writes
-- Purpose: tells who works on messages of a shard now.
-- KEYS: 1 the shard's prefix
-- ARGV: 1 about how many leases to look at
-- Returns: how many messages have a token, ended leases included; then the token and end of those looked at that still hold
local left, held = tonumber(ARGV[1]), 0
local out = {0}
for _, producer in ipairs(call('SMEMBERS', KEYS[1] .. PRODUCERS)) do
  local g = open(producer)
  held = held + call('HLEN', g.leases)
  if left > 0 then
    local found = call('HSCAN', g.leases, 0, 'COUNT', left)[2]
    left = left - #found / 2
    for i = 1, #found, 2 do
      local _, due = indexed(g, found[i])
      if due and live(due) then
        out[#out + 1] = found[i + 1]
        out[#out + 1] = due
      end
    end
  end
end
out[1] = held
return out
