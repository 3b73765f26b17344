#!lua flags=no-writes
-- Purpose: tells which messages of a state are due, and since when, without touching them.
-- KEYS: 1 the shard's prefix
-- ARGV: 1 code of the state; 2 how many due times a producer gets at most; then pairs of a producer and its own most;
--   without any pair all producers of the shard are looked at
-- Returns: for each producer with due messages {name, due times in milliseconds, oldest first}
local s, most = tonumber(ARGV[1]), tonumber(ARGV[2])

-- far are due times later than any legal one: a clock that jumped has set them, and they count as due.
local function due(g, limit)
  local found = {g.producer}
  local list = call('ZRANGEBYSCORE', g[s], '-inf', now, 'WITHSCORES', 'LIMIT', 0, limit)
  for i = 2, #list, 2 do
    found[#found + 1] = tonumber(list[i])
  end
  if #found <= limit then
    local far = call('ZRANGEBYSCORE', g[s], '(' .. string.format('%.0f', now + MAXDUE), '+inf', 'LIMIT', 0, limit + 1 - #found)
    for _ = 1, #far do
      found[#found + 1] = now
    end
  end
  return found
end

local out = {}
local function look(producer, limit)
  local ok, found = pcall(due, open(producer), limit)
  if ok and #found > 1 then
    out[#out + 1] = found
  end
end

if ARGV[3] then
  for i = 3, #ARGV, 2 do
    look(ARGV[i], math.min(most, tonumber(ARGV[i + 1])))
  end
else
  for _, producer in ipairs(call('SMEMBERS', KEYS[1] .. PRODUCERS)) do
    look(producer, most)
  end
end
return out
