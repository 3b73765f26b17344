#!lua flags=no-writes
-- Purpose: tells who works on messages of a shard now.
-- KEYS: 1 the shard's prefix
-- ARGV: 1 about how many leases to look at
-- Returns: how many messages have a token, ended leases included; then the token and end of those looked at that still hold
local left, held = math.min(5 * MAXCALL, tonumber(ARGV[1])), 0
local out = {0}

-- paged counts the owners of messages with cells. Of many cells it reads a sample.
local function paged(key)
  local count = call('HLEN', key)
  if count == 0 then
    return
  end
  local found, owned = call('HSCAN', key, 0, 'COUNT', math.max(20, left))[2], 0
  for i = 2, #found, 2 do
    local token, due = token_of(found[i]), due_of(found[i])
    if token then
      owned = owned + 1
      if due and live(due) and left > 0 then
        out[#out + 1] = token
        out[#out + 1] = due
      end
    end
  end
  left = left - #found / 2
  held = held + math.floor(owned * count / math.max(1, #found / 2) + 0.5)
end

for _, producer in ipairs(call('SMEMBERS', KEYS[1] .. PRODUCERS)) do
  local g = open(producer)
  paged(g[FIRST] .. CELLS)
  paged(g[COMMITTED] .. CELLS)
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
