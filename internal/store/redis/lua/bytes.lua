#!lua flags=no-writes
-- Purpose: weighs the unfinished messages of producers.
-- KEYS: 1 the shard's prefix
-- ARGV: 1 how many records of a producer's messages in one state are looked at; then the producers
-- Returns: for each producer how many bytes the records take. Of more messages, a random sample counts for all.
local most = math.min(MAXCALL, math.max(1, tonumber(ARGV[1])))

local function weigh(g, count, sample, key)
  local n = call(count, key)
  if n == 0 then
    return 0
  end
  local bytes, ids = 0, call(sample, key, most)
  for _, id in ipairs(ids) do
    bytes = bytes + call('STRLEN', g.record .. id)
  end
  return bytes * n / #ids
end

local out = {}
for i = 2, #ARGV do
  local g, bytes = open(ARGV[i]), 0
  for s = 1, #KEPT do
    for count, sample in pairs({HLEN = 'HRANDFIELD', ZCARD = 'ZRANDMEMBER'}) do
      local ok, weight = pcall(weigh, g, count, sample, count == 'HLEN' and g[s] .. CELLS or g[s])
      bytes = bytes + (ok and weight or 0) -- unusable keys weigh nothing
    end
  end
  out[i - 1] = math.floor(bytes)
end
return out
