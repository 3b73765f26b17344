#!lua flags=no-writes
-- Purpose: counts the messages of a shard.
-- KEYS: 1 the shard's prefix
-- ARGV: none
-- Returns: for each kept state its count, when the oldest was created and when the first is due, in milliseconds; 0 when
--   there is none; then how many SENDABLE messages stand behind others of their chains; then the producers with messages
--   in the first state, each with the count of these messages
local out = {}
local held = 3 * #KEPT + 1
for i = 1, held do
  out[i] = 0
end

local function earlier(i, ms)
  if ms and ms < BEHIND and (out[i] == 0 or ms < out[i]) then
    out[i] = ms
  end
end

-- first keeps the smaller score of what stands first in an index.
local function first(i, index)
  earlier(i, tonumber(call('ZRANGE', index, 0, 0, 'WITHSCORES')[2]))
end

-- paged counts messages with cells. Of many cells it reads a sample: none is older than the life of a page.
local function paged(s, key)
  local count = call('HLEN', key)
  if count == 0 then
    return
  end
  out[3 * s - 2] = out[3 * s - 2] + count
  local found = call('HSCAN', key, 0, 'COUNT', 200)[2]
  for i = 2, #found, 2 do
    earlier(3 * s - 1, tonumber(created_of(found[i])))
    earlier(3 * s, due_of(found[i]))
  end
end
for _, producer in ipairs(call('SMEMBERS', KEYS[1] .. PRODUCERS)) do
  local g, before = open(producer), out[3 * FIRST - 2]
  paged(FIRST, g[FIRST] .. CELLS)
  paged(COMMITTED, g[COMMITTED] .. CELLS)
  for s = 1, #KEPT do
    local count = call('ZCARD', g[s])
    if count > 0 then
      out[3 * s - 2] = out[3 * s - 2] + count
      first(3 * s - 1, g[s] .. CREATED)
      first(3 * s, g[s])
    end
  end
  if call('EXISTS', g.keys) == 1 then
    out[held] = out[held] + call('ZCOUNT', g[COMMITTED], stamp(BEHIND), '+inf')
  end
  if out[3 * FIRST - 2] > before then
    out[#out + 1] = producer
    out[#out + 1] = out[3 * FIRST - 2] - before
  end
end
return out
